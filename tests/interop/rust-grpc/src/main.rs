//! The stock Rust client of RocketMQ 5 over gRPC. It sends, receives and acknowledges, and prints one line of words for
//! each message, as java-grpc/GrpcClient.java does. Arguments: the proxy's address, topic and group.

use std::collections::HashMap;
use std::error::Error;
use std::time::{Duration, Instant};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::{Producer, SimpleConsumer};

const INVISIBLE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let [proxy, topic, group] = std::env::args()
        .skip(1)
        .collect::<Vec<_>>()
        .try_into()
        .expect("PROXY TOPIC GROUP");
    send(&proxy, &topic).await?;
    consume(&proxy, &topic, &group).await
}

/// Sends two messages with the tag that is received, and one between them with another tag.
async fn send(proxy: &str, topic: &str) -> Result<(), Box<dyn Error>> {
    let mut option = ProducerOption::default();
    option.set_topics(vec![topic]);
    let mut producer = Producer::new(option, client_option(proxy))?;
    producer.start().await?;
    for (body, tag) in [("one", "red"), ("other", "blue"), ("two", "red")] {
        let message = MessageBuilder::builder()
            .set_topic(topic)
            .set_tag(tag)
            .set_keys(vec!["k1"])
            .set_properties(HashMap::from([("p", "v")]))
            .set_body(body.as_bytes().to_vec())
            .build()?;
        producer.send(message).await?;
    }
    producer.shutdown().await?;
    Ok(())
}

/// Acknowledges one of two messages. Only the other one comes again.
async fn consume(proxy: &str, topic: &str, group: &str) -> Result<(), Box<dyn Error>> {
    let mut option = SimpleConsumerOption::default();
    option.set_consumer_group(group);
    option.set_topics(vec![topic]);
    let mut consumer = SimpleConsumer::new(option, client_option(proxy))?;
    consumer.start().await?;
    let asked = Instant::now();
    for _ in 0..2 {
        let view = receive(&consumer, topic).await?;
        say("got", &view);
        if view.body() == b"one" {
            consumer.ack(&view).await?;
        }
    }
    let view = receive(&consumer, topic).await?;
    say("again", &view);
    println!("told early {}", asked.elapsed() < INVISIBLE);
    consumer.ack(&view).await?;
    consumer.shutdown().await?;
    Ok(())
}

async fn receive(consumer: &SimpleConsumer, topic: &str) -> Result<MessageView, Box<dyn Error>> {
    let red = FilterExpression::new(FilterType::Tag, "red");
    let asked = Instant::now();
    while asked.elapsed() < PATIENCE {
        let views = consumer.receive_with(topic, &red, 1, INVISIBLE).await?;
        if let Some(view) = views.into_iter().next() {
            return Ok(view);
        }
    }
    Err("nothing came".into())
}

/// The long poll keeps its default of 40 s. This client gives up when that time ends, so an empty poll is an error unless
/// the proxy ends it earlier, after 20 s.
fn client_option(proxy: &str) -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(proxy);
    option.set_enable_tls(false);
    option
}

fn say(what: &str, view: &MessageView) {
    println!(
        "told {what} {} {} {:?} {:?} {}",
        String::from_utf8_lossy(view.body()),
        view.tag().unwrap_or("-"),
        view.keys(),
        view.properties(),
        view.delivery_attempt(),
    );
}
