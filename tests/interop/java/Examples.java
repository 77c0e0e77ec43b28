import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/**
 * What RocketMQ's example programs do and no other driver here does: request and reply, message
 * trace, namespaces, broadcast, lite pull with offsets of one's own. One line of words for each
 * thing that came of it, without times and ids, so that two brokers can be compared. Arguments:
 * name server, topic, the same with its namespace.
 */
final class Examples {
    private static final PrintStream OUT = System.out;
    private static final long PATIENCE_S = 30;
    /** For a call and for a request, instead of 3 s: a busy machine loses neither. */
    private static final int CALL_MS = 20_000;
    private static final long TRACE_AGAIN_S = 6;
    private static final Set<String> NAMED_BY_CHANCE = Set.of(
        "UNIQ_KEY", "CORRELATION_ID", "REPLY_TO_CLIENT", "ARRIVE_TIME", "PUSH_REPLY_TIME",
        "CONSUME_START_TIME", "MIN_OFFSET", "MAX_OFFSET");

    public static void main(String[] arguments) {
        System.setOut(System.err);
        int status = 0;
        try {
            requestAndReply(arguments[0], arguments[1] + "-rpc");
            trace(arguments[0], arguments[1] + "-trace");
            namespace(arguments[0], arguments[1] + "-ns");
            broadcast(arguments[0], arguments[1] + "-all");
            litePull(arguments[0], arguments[1] + "-lite");
        } catch (Throwable error) {
            error.printStackTrace();
            status = 1;
        }
        // The library leaves threads behind.
        System.exit(status);
    }

    private static void requestAndReply(String namesrv, String topic) throws Exception {
        CountDownLatch replied = new CountDownLatch(2);
        DefaultMQProducer replier = producer(namesrv, topic + "-replier");
        DefaultMQPushConsumer consumer = consumer(namesrv, topic + "-g", topic, message -> {
            if (text(message).equals("nobody answers")) {
                return;
            }
            say("request", text(message), properties(message));
            Message reply = MessageUtil.createReplyMessage(message, ("re: " + text(message)).getBytes());
            SendResult result = replier.send(reply, CALL_MS);
            say("replied", text(message), result.getSendStatus());
            replied.countDown();
        });
        consumer.start();
        DefaultMQProducer producer = producer(namesrv, topic + "-requester");
        Message reply = producer.request(new Message(topic, "now".getBytes()), CALL_MS);
        say("reply", text(reply), properties(reply));
        CountDownLatch answered = new CountDownLatch(1);
        producer.request(new Message(topic, "later".getBytes()), new RequestCallback() {
            @Override
            public void onSuccess(Message message) {
                say("callback", text(message), properties(message));
                answered.countDown();
            }

            @Override
            public void onException(Throwable error) {
                say("callback", error.getClass().getSimpleName());
                answered.countDown();
            }
        }, CALL_MS);
        await(answered);
        await(replied);
        try {
            producer.request(new Message(topic, "nobody answers".getBytes()), 3000);
            say("unanswered", "answered");
        } catch (RequestTimeoutException error) {
            say("unanswered", error.getClass().getSimpleName());
        }
        producer.shutdown();
        replier.shutdown();
        consumer.shutdown();
    }

    private static void trace(String namesrv, String topic) throws Exception {
        DefaultMQPushConsumer reader =
            consumer(namesrv, topic + "-reader", "RMQ_SYS_TRACE_TOPIC", message -> { });
        Set<String> told = Collections.synchronizedSet(new TreeSet<>());
        CountDownLatch traced = new CountDownLatch(3);
        reader.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                for (String line : text(message).split("\u0002")) {
                    String[] words = line.split("\u0001", -1);
                    if (line.contains(topic) && told.add(shape(words))) {
                        traced.countDown();
                    }
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        reader.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(topic + "-g", true);
        CountDownLatch received = new CountDownLatch(1);
        configure(consumer, namesrv, topic, message -> received.countDown());
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer(topic + "-p", true);
        start(producer, namesrv);
        // The client gives up a trace that it cannot send at once; what it told already is the same.
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        do {
            producer.send(new Message(topic, "Tag", "key-1", "traced".getBytes()));
        } while (!traced.await(TRACE_AGAIN_S, TimeUnit.SECONDS) && System.nanoTime() < until);
        await(received);
        if (traced.getCount() > 0) {
            throw new IllegalStateException("of the trace, only this came: " + told);
        }
        for (String line : told) {
            say("trace", line);
        }
        producer.shutdown();
        consumer.shutdown();
        reader.shutdown();
    }

    /** The words of a line of the trace that are the same in every run, and how many there are. */
    private static String shape(String[] words) {
        List<String> shape = new ArrayList<>();
        shape.add(words[0]);
        shape.add(words.length + " words");
        for (String word : words) {
            if (word.matches("Tag|key-1|true|false") || word.contains("-trace")) {
                shape.add(word);
            }
        }
        return String.join(" ", shape);
    }

    private static void namespace(String namesrv, String topic) throws Exception {
        CountDownLatch received = new CountDownLatch(2);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("space", topic + "-g");
        configure(consumer, namesrv, topic, message -> {
            say("in the namespace", message.getTopic().equals(topic), text(message), properties(message));
            received.countDown();
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer("space", topic + "-p");
        start(producer, namesrv);
        for (int number = 0; number < 2; number++) {
            SendResult sent = producer.send(new Message(topic, ("message " + number).getBytes()));
            say("sent", sent.getSendStatus(), sent.getMessageQueue().getTopic().equals(topic));
        }
        await(received);
        producer.shutdown();
        consumer.shutdown();
    }

    private static void broadcast(String namesrv, String topic) throws Exception {
        DefaultMQProducer producer = producer(namesrv, topic + "-p");
        CountDownLatch received = new CountDownLatch(20);
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        Map<String, Integer> counts = Collections.synchronizedMap(new TreeMap<>());
        for (int number = 0; number < 2; number++) {
            String name = "member " + number;
            DefaultMQPushConsumer consumer = consumer(namesrv, topic + "-g", topic, message -> {
                counts.merge(name, 1, Integer::sum);
                received.countDown();
            });
            consumer.setInstanceName(name.replace(' ', '-'));
            consumer.setMessageModel(MessageModel.BROADCASTING);
            consumer.start();
            consumers.add(consumer);
        }
        for (int number = 0; number < 10; number++) {
            producer.send(new Message(topic, ("message " + number).getBytes()));
        }
        await(received);
        say("broadcast", counts);
        producer.shutdown();
        consumers.forEach(DefaultMQPushConsumer::shutdown);
    }

    private static void litePull(String namesrv, String topic) throws Exception {
        DefaultMQProducer producer = producer(namesrv, topic + "-p");
        for (int number = 0; number < 10; number++) {
            Message message = new Message(topic, ("message " + number).getBytes());
            producer.send(message, (queues, sent, none) -> queues.get(0), null);
        }
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(topic + "-g");
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(CALL_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.start();
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
        MessageQueue first = queues.stream().min(MessageQueue::compareTo).orElseThrow();
        consumer.assign(Set.of(first));
        // All ten are readable then: Java's broker acknowledges before, and refuses a seek past the
        // end. The client starts to wait for more, and can lose a seek before it does.
        say("lite pull", bodies(consumer, 10), consumer.poll(500).size());
        consumer.seek(first, 4);
        say("lite pull from 4", bodies(consumer, 6), consumer.poll(500).size());
        consumer.commitSync();
        say("committed", consumer.committed(first));
        consumer.seekToBegin(first);
        say("lite pull from the beginning", bodies(consumer, 10));
        consumer.pause(Set.of(first));
        say("paused", consumer.poll(500).size());
        consumer.shutdown();
        producer.shutdown();
    }

    private static List<String> bodies(DefaultLitePullConsumer consumer, int count) {
        List<String> found = new ArrayList<>();
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (found.size() < count && System.nanoTime() < until) {
            for (MessageExt message : consumer.poll(500)) {
                found.add(text(message));
            }
        }
        return found;
    }

    private interface Handler {
        void handle(MessageExt message) throws Exception;
    }

    private static DefaultMQPushConsumer consumer(
        String namesrv, String group, String topic, Handler handler) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        configure(consumer, namesrv, topic, handler);
        return consumer;
    }

    private static void configure(
        DefaultMQPushConsumer consumer, String namesrv, String topic, Handler handler)
        throws Exception {
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(CALL_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullTimeDelayMillsWhenException(200);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    handler.handle(message);
                } catch (Exception error) {
                    say("failed", error);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    }

    private static DefaultMQProducer producer(String namesrv, String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        start(producer, namesrv);
        return producer;
    }

    private static void start(DefaultMQProducer producer, String namesrv) throws Exception {
        producer.setNamesrvAddr(namesrv);
        producer.setMqClientApiTimeout(CALL_MS);
        // One attempt has all of the time, so that no message is sent twice.
        producer.setSendMsgTimeout(CALL_MS);
        producer.start();
    }

    private static void await(CountDownLatch latch) throws InterruptedException {
        if (!latch.await(PATIENCE_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException("nothing came for " + PATIENCE_S + " s");
        }
    }

    private static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static String properties(Message message) {
        Map<String, String> shown = new TreeMap<>(message.getProperties());
        shown.replaceAll((name, value) -> NAMED_BY_CHANCE.contains(name) ? "" : value);
        return shown.toString();
    }

    private static synchronized void say(Object... words) {
        List<String> shown = new ArrayList<>();
        for (Object word : words) {
            shown.add(String.valueOf(word));
        }
        OUT.println(String.join(" | ", shown));
    }
}
