import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The Java client driven over JSON lines, like the C++ and the Node.js one; support/clients.py is
 * the other end.
 *
 * <pre>
 *   JavaDriver produce NAMESRV GROUP OPTIONS-JSON
 *   JavaDriver consume NAMESRV GROUP OPTIONS-JSON
 * </pre>
 */
public final class JavaDriver {
    private static final int BODY_SHOWN_MAX = 2000;
    // The library prints to stdout now and then: events keep the real one to themselves.
    private static final PrintStream EVENTS = System.out;

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err);
        JSONObject options = JSON.parseObject(arguments[3]);
        try {
            if (arguments[0].equals("produce")) {
                produce(arguments[1], arguments[2], options);
            } else {
                consume(arguments[1], arguments[2], options);
            }
        } catch (Throwable error) {
            emit("broken", event -> event.put("error", String.valueOf(error)));
            error.printStackTrace();
            System.exit(1);
        }
        emit("stopped", event -> { });
        System.exit(0);
    }

    private static void produce(String namesrv, String group, JSONObject options) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(namesrv);
        producer.setClientIP("127.0.0.1");
        producer.setSendMsgTimeout(intOf(options, "timeout_ms", 10000));
        producer.setMaxMessageSize(16 * 1024 * 1024);
        producer.setCompressMsgBodyOverHowmuch(intOf(options, "compress_over", 4096));
        producer.setRetryTimesWhenSendFailed(intOf(options, "retries", 2));
        producer.start();
        emit("ready", event -> event.put("client", "java"));
        for (JSONObject command = read(); command != null; command = read()) {
            if (command.getString("op").equals("stop")) {
                break;
            }
            Integer id = command.getInteger("id");
            try {
                send(producer, command, id);
            } catch (Exception error) {
                failed(id, error);
            }
        }
        producer.shutdown();
    }

    private static void send(DefaultMQProducer producer, JSONObject command, Integer id)
        throws Exception {
        switch (command.getString("mode")) {
            case "sync":
                sent(id, producer.send(message(command, command.getString("body"))));
                break;
            case "oneway":
                producer.sendOneway(message(command, command.getString("body")));
                sent(id, null);
                break;
            case "async":
                producer.send(message(command, command.getString("body")), new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        sent(id, result);
                    }

                    @Override
                    public void onException(Throwable error) {
                        failed(id, error);
                    }
                });
                break;
            case "ordered":
                sent(id, producer.send(message(command, command.getString("body")),
                    (queues, message, shard) -> queues.get((Integer) shard % queues.size()),
                    command.getInteger("shard")));
                break;
            case "batch":
                List<Message> batch = new ArrayList<>();
                for (Object body : command.getJSONArray("bodies")) {
                    batch.add(message(command, (String) body));
                }
                sent(id, producer.send(batch));
                break;
            default:
                throw new IllegalArgumentException("no mode " + command.getString("mode"));
        }
    }

    private static Message message(JSONObject command, String text) {
        byte[] body;
        if (command.containsKey("random_bytes")) {
            body = new byte[command.getInteger("random_bytes")];
            new Random().nextBytes(body);
        } else {
            body = text.getBytes(StandardCharsets.UTF_8);
        }
        Message message = new Message(command.getString("topic"), body);
        if (command.getString("tags") != null) {
            message.setTags(command.getString("tags"));
        }
        if (command.getString("keys") != null) {
            message.setKeys(command.getString("keys"));
        }
        if (command.containsKey("delay_level")) {
            message.setDelayTimeLevel(command.getInteger("delay_level"));
        }
        if (command.containsKey("properties")) {
            for (Map.Entry<String, Object> one : command.getJSONObject("properties").entrySet()) {
                message.putUserProperty(one.getKey(), (String) one.getValue());
            }
        }
        return message;
    }

    private static void consume(String namesrv, String group, JSONObject options) throws Exception {
        int failBelow = intOf(options, "fail_below", 0);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setClientIP("127.0.0.1");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(intOf(options, "threads", 2));
        consumer.setConsumeThreadMax(intOf(options, "threads", 2));
        String expression = options.getString("expression");
        consumer.subscribe(options.getString("topic"), expression == null ? "*" : expression);
        if (options.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                for (MessageExt message : messages) {
                    received(message);
                }
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                boolean fail = false;
                for (MessageExt message : messages) {
                    received(message);
                    fail |= message.getReconsumeTimes() < failBelow;
                }
                return fail ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        emit("ready", event -> event.put("client", "java"));
        for (JSONObject command = read(); command != null; command = read()) {
            if (command.getString("op").equals("stop")) {
                break;
            }
        }
        consumer.shutdown();
    }

    private static void sent(Integer id, SendResult result) {
        emit("sent", event -> {
            event.put("id", id);
            event.put("status", result == null ? "ONEWAY" : result.getSendStatus().name());
            event.put("msg_id", result == null ? null : result.getMsgId());
            event.put("queue_offset", result == null ? null : result.getQueueOffset());
        });
    }

    private static void failed(Integer id, Throwable error) {
        emit("failed", event -> {
            event.put("id", id);
            event.put("error", String.valueOf(error));
        });
    }

    private static void received(MessageExt message) {
        byte[] body = message.getBody();
        emit("message", event -> {
            event.put("topic", message.getTopic());
            event.put("body", body.length <= BODY_SHOWN_MAX
                ? new String(body, StandardCharsets.UTF_8) : null);
            event.put("size", body.length);
            event.put("sha256", sha256(body));
            event.put("tags", message.getTags());
            event.put("keys", message.getKeys());
            event.put("queue_id", message.getQueueId());
            event.put("queue_offset", message.getQueueOffset());
            event.put("commit_log_offset", message.getCommitLogOffset());
            event.put("msg_id", message.getMsgId());
            event.put("reconsume_times", message.getReconsumeTimes());
            event.put("born_timestamp", message.getBornTimestamp());
            event.put("store_timestamp", message.getStoreTimestamp());
            event.put("store_size", message.getStoreSize());
            event.put("properties", message.getProperties());
        });
    }

    private static String sha256(byte[] body) {
        try {
            StringBuilder text = new StringBuilder();
            for (byte one : MessageDigest.getInstance("SHA-256").digest(body)) {
                text.append(String.format("%02x", one));
            }
            return text.toString();
        } catch (java.security.NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    private static final BufferedReader COMMANDS =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

    private static JSONObject read() throws java.io.IOException {
        String line = COMMANDS.readLine();
        return line == null ? null : JSON.parseObject(line);
    }

    private static int intOf(JSONObject options, String name, int otherwise) {
        return options.containsKey(name) ? options.getInteger(name) : otherwise;
    }

    private static void emit(String name, java.util.function.Consumer<JSONObject> fill) {
        JSONObject event = new JSONObject(true);
        event.put("event", name);
        fill.accept(event);
        byte[] line = (JSON.toJSONString(event,
            com.alibaba.fastjson.serializer.SerializerFeature.WriteMapNullValue) + "\n")
            .getBytes(StandardCharsets.UTF_8);
        synchronized (EVENTS) {
            EVENTS.write(line, 0, line.length);
            EVENTS.flush();
        }
    }

    private JavaDriver() {
    }
}
