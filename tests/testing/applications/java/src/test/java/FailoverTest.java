import static org.junit.jupiter.api.Assertions.assertEquals;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.junit.jupiter.api.Test;

/** RocketMQ's own client against a cluster of `trioha dev`, which the test itself hurts. */
class FailoverTest {
  private static final String NAMESRV = System.getenv("NAMESRV_ADDR");
  private static final int COUNT = 20;

  private static void hand(String path, String fields) throws Exception {
    var request =
        HttpRequest.newBuilder(URI.create(System.getenv("TRIOHA_DEV_FAULTS") + path))
            .header("Content-Type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString(fields))
            .build();
    var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
    assertEquals(200, answer.statusCode(), answer.body());
  }

  private static void send(DefaultMQProducer producer, Set<String> sent, int first)
      throws Exception {
    for (int number = first; number < first + COUNT; number++) {
      String body = "order " + number;
      producer.send(new Message("orders", body.getBytes()));
      sent.add(body);
    }
  }

  @Test
  void ordersSurviveTheLossOfTheMaster() throws Exception {
    Set<String> sent = new TreeSet<>();
    var producer = new DefaultMQProducer("shop");
    producer.setNamesrvAddr(NAMESRV);
    producer.setRetryTimesWhenSendFailed(10);
    producer.setPollNameServerInterval(500);
    producer.start();
    send(producer, sent, 0);
    hand("/brokers/broker-a-0/kill", "{}");
    hand("/fail_over", "{\"force\": true}");
    producer.getDefaultMQProducerImpl().getmQClientFactory().updateTopicRouteInfoFromNameServer();
    send(producer, sent, COUNT);
    producer.shutdown();

    Set<String> received = new ConcurrentSkipListSet<>();
    var all = new CountDownLatch(2 * COUNT);
    var consumer = new DefaultMQPushConsumer("billing");
    consumer.setNamesrvAddr(NAMESRV);
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.subscribe("orders", "*");
    consumer.registerMessageListener(
        (MessageListenerConcurrently)
            (messages, context) -> {
              for (var message : messages) {
                if (received.add(new String(message.getBody()))) {
                  all.countDown();
                }
              }
              return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
    consumer.start();
    all.await(60, TimeUnit.SECONDS);
    consumer.shutdown();
    assertEquals(sent, received);
  }
}
