import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * The stock Java client as a load generator: run after run in one JVM, so that it warms up once.
 *
 * <pre>
 *   LoadClient NAMESRV
 * </pre>
 *
 * A line on stdin is a run: {"mode": "send|async|drain|e2e|paced", "options": {…}}. Each has
 * producers and consumers of its own. Answers are JSON objects, one per line, on stdout:
 * "measuring" and "measured" at the ends of the measured window, so that whoever started us can
 * read the brokers' CPU clocks there, then "result" or "broken". A send that is not SEND_OK is
 * an error under its status, one that throws is an error under its exception; neither is counted in
 * a rate or a latency. Sends are not tried again, but for "paced", which is the client as it comes.
 */
public final class LoadClient {
    private static final PrintStream EVENTS = System.out;
    private static final BufferedReader COMMANDS =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private static final long IDLE_NANOS = TimeUnit.SECONDS.toNanos(20);

    private final String namesrv;
    private final JSONObject options;
    private final String topic;
    private final Map<String, AtomicLong> errors = new ConcurrentHashMap<>();
    private final ConcurrentLinkedQueue<Histogram> histograms = new ConcurrentLinkedQueue<>();
    private final ThreadLocal<Histogram> histogram = ThreadLocal.withInitial(() -> {
        Histogram mine = new Histogram();
        histograms.add(mine);
        return mine;
    });
    private final AtomicLong stored = new AtomicLong();
    private final AtomicLong numbers = new AtomicLong();
    private final AtomicReference<String> firstError = new AtomicReference<>();
    private long measuredFrom = Long.MAX_VALUE;
    private long measuredTo = Long.MAX_VALUE;

    private LoadClient(String namesrv, JSONObject options) {
        this.namesrv = namesrv;
        this.options = options;
        this.topic = options.getString("topic");
    }

    public static void main(String[] arguments) throws IOException {
        // The library prints to stdout now and then: events keep the real one to themselves.
        System.setOut(System.err);
        String line;
        while ((line = COMMANDS.readLine()) != null) {
            JSONObject command = JSON.parseObject(line);
            LoadClient client = new LoadClient(arguments[0], command.getJSONObject("options"));
            try {
                client.run(command.getString("mode"));
            } catch (Throwable error) {
                error.printStackTrace();
                JSONObject event = new JSONObject();
                event.put("error", String.valueOf(error));
                emit("broken", event);
            }
        }
        System.exit(0);
    }

    private void run(String mode) throws Exception {
        JSONObject figures = new JSONObject();
        switch (mode) {
            case "send":
                send(figures);
                break;
            case "async":
                sendAsync(figures);
                break;
            case "drain":
                drain(figures);
                break;
            case "e2e":
                endToEnd(figures);
                break;
            case "paced":
                sendPaced(figures);
                break;
            default:
                throw new IllegalArgumentException("no mode " + mode);
        }
        JSONObject result = new JSONObject();
        result.put("figures", figures);
        result.put("errors", errors);
        result.put("first_error", firstError.get());
        result.put("stored", stored.get());
        emit("result", result);
    }

    /** `threads` senders, one message or `batch` of them at a time, for a time or for `messages`. */
    private void send(JSONObject figures) throws Exception {
        DefaultMQProducer producer = startProducer(0);
        int batch = number("batch", 1);
        long messages = number("messages", 0);
        AtomicLong left = new AtomicLong(messages == 0 ? Long.MAX_VALUE : messages);
        AtomicBoolean stop = new AtomicBoolean();
        List<Thread> threads = new ArrayList<>();
        long started = System.nanoTime();
        if (messages == 0) {
            openWindow(started);
        } else {
            measuredFrom = started;
        }
        for (int index = 0; index < number("threads", 1); index++) {
            byte[] body = body();
            Thread thread = new Thread(() -> {
                while (!stop.get() && left.getAndAdd(-batch) > 0) {
                    sendOnce(producer, body, batch);
                }
            });
            threads.add(thread);
        }
        threads.forEach(Thread::start);
        if (messages == 0) {
            waitOutWindow();
            stop.set(true);
        } else {
            emit("measuring", new JSONObject());
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (messages != 0) {
            measuredTo = System.nanoTime();
            emit("measured", new JSONObject());
        }
        reportSends(figures, batch);
        producer.shutdown();
    }

    private void sendOnce(DefaultMQProducer producer, byte[] body, int batch) {
        long began = System.nanoTime();
        try {
            SendResult result;
            if (producer instanceof TransactionMQProducer) {
                result = producer.sendMessageInTransaction(new Message(topic, body), null);
            } else if (batch == 1) {
                result = producer.send(timed(new Message(topic, body)));
            } else {
                List<Message> messages = new ArrayList<>(batch);
                for (int index = 0; index < batch; index++) {
                    Message message = new Message(topic, body);
                    if (options.getBooleanValue("numbered")) {
                        message.putUserProperty("n", String.valueOf(numbers.getAndIncrement() % 100));
                    }
                    messages.add(message);
                }
                result = producer.send(messages);
            }
            take(result, began, batch);
        } catch (Exception error) {
            fail(error);
            pause();
        }
    }

    /** The message, for a later time if the options say so. */
    private Message timed(Message message) {
        String delay = options.getString("timer_delay_s");
        if (delay != null) {
            message.putUserProperty("TIMER_DELAY_SEC", delay);
        }
        String at = options.getString("deliver_at_ms");
        if (at != null) {
            message.putUserProperty("TIMER_DELIVER_MS", at);
        }
        return message;
    }

    /** One sender that has at most `in_flight` sends under way. */
    private void sendAsync(JSONObject figures) throws Exception {
        DefaultMQProducer producer = startProducer(0);
        int inFlight = number("in_flight", 64);
        Semaphore free = new Semaphore(inFlight);
        AtomicBoolean stop = new AtomicBoolean();
        byte[] body = body();
        openWindow(System.nanoTime());
        Thread sender = new Thread(() -> {
            while (!stop.get()) {
                free.acquireUninterruptibly();
                long began = System.nanoTime();
                try {
                    producer.send(new Message(topic, body), new SendCallback() {
                        @Override
                        public void onSuccess(SendResult result) {
                            take(result, began, 1);
                            free.release();
                        }

                        @Override
                        public void onException(Throwable error) {
                            fail(error);
                            free.release();
                        }
                    });
                } catch (Exception error) {
                    fail(error);
                    free.release();
                    pause();
                }
            }
        });
        sender.start();
        waitOutWindow();
        stop.set(true);
        sender.join();
        if (!free.tryAcquire(inFlight, 10, TimeUnit.SECONDS)) {
            count("never answered", inFlight - free.availablePermits());
        }
        reportSends(figures, 1);
        producer.shutdown();
    }

    /** A push consumer as it comes, from its start to the last of `messages`. */
    private void drain(JSONObject figures) throws Exception {
        long expected = options.getLongValue("messages");
        AtomicLong received = new AtomicLong();
        AtomicLong firstAt = new AtomicLong();
        AtomicLong lastAt = new AtomicLong();
        AtomicLong completeAt = new AtomicLong();
        Semaphore complete = new Semaphore(0);
        DefaultMQPushConsumer consumer = newConsumer((messages, context) -> {
            long now = System.nanoTime();
            firstAt.compareAndSet(0, now);
            lastAt.set(now);
            long before = received.getAndAdd(messages.size());
            if (before < expected && before + messages.size() >= expected) {
                completeAt.set(now);
                complete.release();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        emit("measuring", new JSONObject());
        long began = System.nanoTime();
        consumer.start();
        while (!complete.tryAcquire(1, TimeUnit.SECONDS)) {
            if (System.nanoTime() - Math.max(began, lastAt.get()) > IDLE_NANOS) {
                break;
            }
        }
        emit("measured", new JSONObject());
        consumer.shutdown();
        if (received.get() != expected) {
            String name = received.get() < expected ? "missing" : "repeated";
            count(name, Math.abs(expected - received.get()));
        }
        figures.put("count", received.get());
        if (completeAt.get() != 0) {
            figures.put("per_s", (expected - 1) * 1e9 / (completeAt.get() - firstAt.get()));
            figures.put("first_ms", (firstAt.get() - began) / 1e6);
        }
    }

    /** From the start of send() to the consumer's callback, `rate` times a second. */
    private void endToEnd(JSONObject figures) throws Exception {
        Set<Long> onTheirWay = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = newConsumer((messages, context) -> {
            long now = System.nanoTime();
            for (MessageExt message : messages) {
                long began = ByteBuffer.wrap(message.getBody()).getLong();
                if (onTheirWay.remove(began)) {
                    histogram.get().add(now - began);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = startProducer(0);
        AtomicBoolean stop = new AtomicBoolean();
        Histogram sends = new Histogram();
        long started = System.nanoTime();
        openWindow(started);
        Thread sender = new Thread(() -> {
            long period = (long) (1e9 / options.getDoubleValue("rate"));
            byte[] template = body();
            for (long due = started; !stop.get(); due += period) {
                sleepUntil(due);
                byte[] body = template.clone();
                long began = System.nanoTime();
                ByteBuffer.wrap(body).putLong(began);
                boolean measured = began >= measuredFrom && began < measuredTo;
                if (measured) {
                    onTheirWay.add(began);
                }
                try {
                    SendResult result = producer.send(new Message(topic, body));
                    if (measured && result.getSendStatus() == SendStatus.SEND_OK) {
                        sends.add(System.nanoTime() - began);
                    } else if (measured) {
                        count(result.getSendStatus().name(), 1);
                    }
                } catch (Exception error) {
                    onTheirWay.remove(began);
                    fail(error);
                }
            }
        });
        sender.start();
        waitOutWindow();
        stop.set(true);
        sender.join();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(5);
        while (!onTheirWay.isEmpty() && System.nanoTime() < deadline) {
            pause();
        }
        if (!onTheirWay.isEmpty()) {
            count("lost", onTheirWay.size());
        }
        producer.shutdown();
        consumer.shutdown();
        Histogram all = merged();
        figures.put("count", all.count());
        all.report(figures, "");
        sends.report(figures, "send_");
    }

    /** One default producer at `rate` until the next line on stdin; every send is told. */
    private void sendPaced(JSONObject figures) throws Exception {
        DefaultMQProducer producer = startProducer(-1);
        AtomicBoolean stop = new AtomicBoolean();
        List<Object> sends = new ArrayList<>();
        Thread sender = new Thread(() -> {
            long period = (long) (1e9 / options.getDoubleValue("rate"));
            byte[] body = body();
            for (long due = System.nanoTime(); !stop.get(); due += period) {
                // What a blocked send delayed is not made up for: one caller, one message.
                due = Math.max(due, System.nanoTime() - period);
                sleepUntil(due);
                long beganWall = System.currentTimeMillis();
                long began = System.nanoTime();
                String outcome;
                try {
                    outcome = producer.send(new Message(topic, body)).getSendStatus().name();
                    stored.incrementAndGet();
                } catch (Exception error) {
                    outcome = nameOf(error);
                    count(outcome, 1);
                }
                sends.add(new Object[] {beganWall, (System.nanoTime() - began) / 1e6, outcome});
            }
        });
        sender.start();
        emit("measuring", new JSONObject());
        COMMANDS.readLine();
        stop.set(true);
        sender.join();
        emit("measured", new JSONObject());
        figures.put("count", sends.size());
        figures.put("sends", sends);
        producer.shutdown();
    }

    private DefaultMQProducer startProducer(int retries) throws Exception {
        String group = options.getString("group");
        DefaultMQProducer producer = options.getBooleanValue("transactional")
            ? newTransactionalProducer(group) : new DefaultMQProducer(group, signer());
        producer.setNamesrvAddr(namesrv);
        producer.setClientIP("127.0.0.1");
        if (retries >= 0) {
            producer.setRetryTimesWhenSendFailed(retries);
            producer.setRetryTimesWhenSendAsyncFailed(retries);
        }
        producer.start();
        return producer;
    }

    /** Signs requests as the account of `bench.accessKey`; null without one. */
    private static RPCHook signer() {
        String key = System.getProperty("bench.accessKey");
        return key == null ? null
            : new AclClientRPCHook(new SessionCredentials(key, System.getProperty("bench.secretKey")));
    }

    /** Every local transaction commits at once. */
    private static TransactionMQProducer newTransactionalProducer(String group) {
        TransactionMQProducer producer = new TransactionMQProducer(group, signer());
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        return producer;
    }

    private DefaultMQPushConsumer newConsumer(MessageListenerConcurrently listener)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            options.getString("group"), signer(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(namesrv);
        consumer.setClientIP("127.0.0.1");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        String sql = options.getString("sql");
        if (sql == null) {
            consumer.subscribe(topic, "*");
        } else {
            consumer.subscribe(topic, MessageSelector.bySql(sql));
        }
        consumer.registerMessageListener(listener);
        return consumer;
    }

    /** Before the senders start, who read it without a lock. */
    private void openWindow(long started) {
        measuredFrom = started + nanos("warm_up_s");
        measuredTo = measuredFrom + nanos("seconds");
    }

    private void waitOutWindow() {
        sleepUntil(measuredFrom);
        emit("measuring", new JSONObject());
        sleepUntil(measuredTo);
        emit("measured", new JSONObject());
    }

    private void take(SendResult result, long began, int messages) {
        long now = System.nanoTime();
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            count(result.getSendStatus().name(), 1);
            return;
        }
        stored.addAndGet(messages);
        if (now >= measuredFrom && now <= measuredTo) {
            histogram.get().add(now - began);
        }
    }

    private void reportSends(JSONObject figures, int batch) {
        Histogram all = merged();
        figures.put("count", all.count() * batch);
        figures.put("per_s", all.count() * batch * 1e9 / (measuredTo - measuredFrom));
        all.report(figures, "");
    }

    private Histogram merged() {
        Histogram all = new Histogram();
        histograms.forEach(all::add);
        return all;
    }

    private void fail(Throwable error) {
        firstError.compareAndSet(null, String.valueOf(error));
        count(nameOf(error), 1);
    }

    private void count(String error, long times) {
        errors.computeIfAbsent(error, name -> new AtomicLong()).addAndGet(times);
    }

    private static String nameOf(Throwable error) {
        String name = error.getClass().getSimpleName();
        boolean answered = error instanceof MQBrokerException;
        return answered ? name + " " + ((MQBrokerException) error).getResponseCode() : name;
    }

    private byte[] body() {
        byte[] body = new byte[number("bytes", 128)];
        new Random(1).nextBytes(body);
        return body;
    }

    private int number(String name, int otherwise) {
        Integer value = options.getInteger(name);
        return value == null ? otherwise : value;
    }

    private long nanos(String name) {
        return (long) (options.getDoubleValue(name) * 1e9);
    }

    private static void sleepUntil(long due) {
        for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
            java.util.concurrent.locks.LockSupport.parkNanos(left);
        }
    }

    /** A refused send is not repeated at the speed of the processor. */
    private static void pause() {
        java.util.concurrent.locks.LockSupport.parkNanos(1_000_000);
    }

    private static void emit(String name, JSONObject event) {
        event.put("event", name);
        synchronized (EVENTS) {
            EVENTS.println(event.toJSONString());
            EVENTS.flush();
        }
    }
}
