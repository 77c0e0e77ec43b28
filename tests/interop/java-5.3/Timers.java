import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The stock 5.3 client with every kind of delay and of recall, on one topic: one line of words for
 * each thing that came of it. Arguments: name servers, topic.
 */
final class Timers {
    private static final PrintStream OUT = System.out;
    private static final int EXPECTED = 7;
    private static final long RECEIVE_S = 30;

    public static void main(String[] arguments) {
        System.setOut(System.err);
        int status = 0;
        try {
            run(arguments[0], arguments[1]);
        } catch (Exception error) {
            error.printStackTrace();
            status = 1;
        }
        // The library leaves threads behind.
        System.exit(status);
    }

    private static void run(String namesrv, String topic) throws Exception {
        CountDownLatch received = new CountDownLatch(EXPECTED);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(topic);
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                received(message);
                received.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer(topic);
        producer.setNamesrvAddr(namesrv);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();

        Message seconds = message(topic, "seconds", 2000);
        seconds.setDelayTimeSec(2);
        send(producer, seconds);
        Message milliseconds = message(topic, "milliseconds", 1500);
        milliseconds.setDelayTimeMs(1500);
        send(producer, milliseconds);
        // A moment, not a delay: a client that stalls for longer sends a message whose time has come.
        Message at = message(topic, "at", 4000);
        at.setDeliverTimeMs(dueMs(at));
        send(producer, at);
        Message level = message(topic, "level", 1000);
        level.setDelayTimeLevel(1);
        level.setDelayTimeSec(60);
        send(producer, level);
        Message past = message(topic, "past", 0);
        past.setDeliverTimeMs(dueMs(past) - 5000);
        send(producer, past);
        Message negative = message(topic, "negative", 0);
        negative.setDelayTimeSec(-3);
        send(producer, negative);
        Message late = message(topic, "beyond", 0);
        late.setDelayTimeSec(4 * 86400);
        send(producer, late);
        Message text = message(topic, "text", 0);
        MessageAccessor.putProperty(text, "TIMER_DELAY_SEC", "soon");
        send(producer, text);

        Message recalled = message(topic, "recalled", 3000);
        recalled.setDelayTimeSec(3);
        String handle = send(producer, recalled);
        recall(producer, topic, "recall", handle);
        recall(producer, topic, "again", handle);
        recall(producer, topic, "nonsense", "nonsense");
        Message last = message(topic, "last", 4000);
        last.setDelayTimeSec(4);
        String delivered = send(producer, last);

        if (!received.await(RECEIVE_S, TimeUnit.SECONDS)) {
            say("incomplete");
        }
        recall(producer, topic, "delivered", delivered);
    }

    private static Message message(String topic, String name, long delayMs) {
        Message message = new Message(topic, "tag", name, name.getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("due", String.valueOf(System.currentTimeMillis() + delayMs));
        return message;
    }

    private static long dueMs(Message message) {
        return Long.parseLong(message.getUserProperty("due"));
    }

    private static String send(DefaultMQProducer producer, Message message) throws Exception {
        long began = System.nanoTime();
        try {
            SendResult result = producer.send(message);
            say("took", message.getKeys(), TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began) + 1);
            say("sent", message.getKeys(), result.getSendStatus(), result.getRecallHandle() != null);
            return result.getRecallHandle();
        } catch (MQBrokerException error) {
            say("rejected", message.getKeys(), error.getResponseCode());
            return null;
        }
    }

    private static void recall(DefaultMQProducer producer, String topic, String name, String handle)
        throws Exception {
        try {
            say("recalled", name, !producer.recallMessage(topic, handle).isEmpty());
        } catch (MQBrokerException error) {
            say("rejected", name, error.getResponseCode());
        } catch (MQClientException error) {
            say("refused", name);
        }
    }

    private static void received(MessageExt message) {
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        long late = message.getStoreTimestamp() - dueMs(message);
        say("received", message.getKeys(), late, message.getTags(), message.getReconsumeTimes(),
            String.join(",", properties.keySet()));
    }

    private static synchronized void say(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) {
            line.append(line.length() == 0 ? "" : " ").append(word);
        }
        OUT.println(line);
        OUT.flush();
    }

    private Timers() {
    }
}
