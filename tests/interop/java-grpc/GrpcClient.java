import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * The stock Java client of RocketMQ 5 over gRPC, with normal, delayed, ordered and transactional messages; one line
 * of words for each thing that came of it. Argument: the proxy's address. The topics have the names of their types.
 */
final class GrpcClient {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Duration INVISIBLE = Duration.ofSeconds(10);
    private static final long DELAY_MS = 3000;
    private static final long PATIENCE_MS = 20_000;

    private final ClientConfiguration configuration;
    private final Producer producer;

    public static void main(String[] arguments) {
        int status = 0;
        try {
            GrpcClient client = new GrpcClient(arguments[0]);
            client.normal();
            client.delayed();
            client.ordered();
            client.transactions();
            client.wrongTypes();
        } catch (Exception error) {
            error.printStackTrace();
            status = 1;
        }
        System.exit(status);
    }

    private GrpcClient(String proxy) throws ClientException {
        configuration = ClientConfiguration.newBuilder().setEndpoints(proxy).enableSsl(false).build();
        producer = PROVIDER.newProducerBuilder()
            .setClientConfiguration(configuration)
            .setTopics("normal", "delay", "fifo")
            .build();
    }

    private void normal() throws Exception {
        Message message = message("normal", "tagged").setTag("red").setKeys("k1").addProperty("p", "v").build();
        producer.send(message);
        producer.send(message("normal", "other").setTag("blue").build());
        SimpleConsumer consumer = consumer("normal", new FilterExpression("red"));
        MessageView view = receive(consumer);
        say("normal", body(view), view.getTag().get(), view.getKeys(), view.getProperties(), view.getDeliveryAttempt());
        long hidden = System.currentTimeMillis();
        consumer.changeInvisibleDuration(view, INVISIBLE);
        view = receive(consumer);
        boolean early = System.currentTimeMillis() - hidden < INVISIBLE.toMillis();
        say("again", body(view), view.getDeliveryAttempt(), early);
        consumer.ack(view);
        consumer.close();
    }

    private void delayed() throws Exception {
        long due = System.currentTimeMillis() + DELAY_MS;
        producer.send(message("delay", "later").setDeliveryTimestamp(due).build());
        SimpleConsumer consumer = consumer("delay", FilterExpression.SUB_ALL);
        MessageView view = receive(consumer);
        boolean early = System.currentTimeMillis() < due;
        say("delayed", body(view), view.getDeliveryTimestamp().get() == due, early);
        consumer.ack(view);
        consumer.close();
    }

    private void ordered() throws Exception {
        for (int number = 0; number < 4; number++) {
            producer.send(message("fifo", "in-order-" + number).setMessageGroup("one").build());
        }
        Set<String> failed = ConcurrentHashMap.newKeySet();
        CountDownLatch last = new CountDownLatch(1);
        PushConsumer consumer = PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup("fifo-group")
            .setSubscriptionExpressions(Map.of("fifo", FilterExpression.SUB_ALL))
            .setMessageListener(view -> {
                String body = body(view);
                say("ordered", body);
                if (body.endsWith("1") && failed.add(body)) {
                    return ConsumeResult.FAILURE;
                }
                if (body.endsWith("3")) {
                    last.countDown();
                }
                return ConsumeResult.SUCCESS;
            })
            .build();
        if (!last.await(PATIENCE_MS, TimeUnit.MILLISECONDS)) {
            say("incomplete");
        }
        consumer.close();
    }

    /** One that is committed, one that is rolled back, and two whose producer is asked. */
    private void transactions() throws Exception {
        Producer sender = PROVIDER.newProducerBuilder()
            .setClientConfiguration(configuration)
            .setTopics("transaction")
            .setTransactionChecker(view -> {
                say("asked", body(view));
                return body(view).equals("kept") ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
            })
            .build();
        SimpleConsumer consumer = consumer("transaction", FilterExpression.SUB_ALL);
        Transaction rolledBack = sender.beginTransaction();
        sender.send(message("transaction", "rolled back").build(), rolledBack);
        rolledBack.rollback();
        Transaction committed = sender.beginTransaction();
        sender.send(message("transaction", "committed").build(), committed);
        committed.commit();
        sayNext(consumer);
        sender.send(message("transaction", "dropped").build(), sender.beginTransaction());
        sender.send(message("transaction", "kept").build(), sender.beginTransaction());
        sayNext(consumer);
        consumer.close();
        sender.close();
    }

    private void sayNext(SimpleConsumer consumer) throws Exception {
        MessageView view = receive(consumer);
        say("of a transaction", body(view));
        consumer.ack(view);
    }

    private void wrongTypes() throws Exception {
        wrong("fifo", message("fifo", "without group").build());
        wrong("normal-late", message("normal", "late").setDeliveryTimestamp(System.currentTimeMillis() + 1000).build());
        wrong("normal-ordered", message("normal", "ordered").setMessageGroup("one").build());
    }

    private void wrong(String name, Message message) throws Exception {
        try {
            producer.send(message);
            say("accepted", name);
        } catch (ClientException | IllegalArgumentException error) {
            say("refused", name);
        }
    }

    private SimpleConsumer consumer(String topic, FilterExpression expression) throws ClientException {
        return PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(topic + "-group")
            .setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Map.of(topic, expression))
            .build();
    }

    private static MessageView receive(SimpleConsumer consumer) throws Exception {
        long until = System.currentTimeMillis() + PATIENCE_MS;
        while (System.currentTimeMillis() < until) {
            for (MessageView view : consumer.receive(1, INVISIBLE)) {
                return view;
            }
        }
        throw new IllegalStateException("nothing came");
    }

    private static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    private static String body(MessageView view) {
        return StandardCharsets.UTF_8.decode(view.getBody()).toString();
    }

    private static synchronized void say(Object... words) {
        StringBuilder line = new StringBuilder("told");
        for (Object word : words) {
            line.append(' ').append(word);
        }
        System.out.println(line);
        System.out.flush();
    }
}
