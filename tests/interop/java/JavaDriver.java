import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * The Java client driven over JSON lines, like the C++ and the Node.js one;
 * support/peers/clients.py is the other end.
 *
 * <pre>
 *   JavaDriver produce NAMESRV GROUP OPTIONS-JSON   (see Transactions with "transactional")
 *   JavaDriver consume NAMESRV GROUP OPTIONS-JSON   (push consumer; lite pull with "lite")
 *   JavaDriver read    NAMESRV GROUP OPTIONS-JSON   (see Reader)
 *   JavaDriver admin                                (see Admin)
 *   JavaDriver call    NAMESRV                      (see Calls)
 * </pre>
 */
public final class JavaDriver {
    private static final long SUSPEND_MS = 200;
    private static final long LITE_POLL_MS = 100;

    public static void main(String[] arguments) throws Exception {
        Events.takeStdout();
        QuickShutdown.begin();
        try {
            switch (arguments[0]) {
                case "produce":
                    produce(arguments[1], arguments[2], JSON.parseObject(arguments[3]));
                    break;
                case "consume":
                    consume(arguments[1], arguments[2], JSON.parseObject(arguments[3]));
                    break;
                case "read":
                    Reader.run(arguments[1], arguments[2]);
                    break;
                case "admin":
                    Admin.run();
                    break;
                case "call":
                    Calls.run(arguments[1]);
                    break;
                default:
                    throw new IllegalArgumentException("no role " + arguments[0]);
            }
        } catch (Throwable error) {
            Events.emit("broken", event -> event.put("error", String.valueOf(error)));
            error.printStackTrace();
            System.exit(1);
        }
        Events.emit("stopped", event -> { });
        System.exit(0);
    }

    private static void produce(String namesrv, String group, JSONObject options) throws Exception {
        boolean transactional = options.getBooleanValue("transactional");
        DefaultMQProducer producer = transactional
            ? new TransactionMQProducer(null, group, hookOf(options))
            : new DefaultMQProducer(group, hookOf(options));
        producer.setNamesrvAddr(namesrv);
        producer.setClientIP("127.0.0.1");
        producer.setSendMsgTimeout(Events.intOf(options, "timeout_ms", 10000));
        producer.setMaxMessageSize(16 * 1024 * 1024);
        producer.setCompressMsgBodyOverHowmuch(Events.intOf(options, "compress_over", 4096));
        producer.setRetryTimesWhenSendFailed(Events.intOf(options, "retries", 2));
        producer.setPollNameServerInterval(Events.intOf(options, "poll_ms", 30000));
        producer.setHeartbeatBrokerInterval(Events.intOf(options, "heartbeat_ms", 30000));
        if (transactional) {
            Transactions.run((TransactionMQProducer) producer, options);
            return;
        }
        producer.start();
        Events.ready();
        for (JSONObject command = Events.read(); command != null; command = Events.read()) {
            Integer id = command.getInteger("id");
            try {
                send(producer, command, id);
            } catch (Exception error) {
                Events.failed(id, error);
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
                        Events.failed(id, error);
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

    static Message message(JSONObject command, String text) {
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
        if (options.getBooleanValue("lite")) {
            consumeLite(namesrv, group, options);
            return;
        }
        int failBelow = Events.intOf(options, "fail_below", 0);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            group, hookOf(options), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(namesrv);
        consumer.setClientIP("127.0.0.1");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(Events.intOf(options, "threads", 2));
        consumer.setConsumeThreadMax(Events.intOf(options, "threads", 2));
        consumer.setPollNameServerInterval(Events.intOf(options, "poll_ms", 30000));
        consumer.setHeartbeatBrokerInterval(Events.intOf(options, "heartbeat_ms", 30000));
        consumer.setPersistConsumerOffsetInterval(Events.intOf(options, "persist_ms", 5000));
        consumer.setMaxReconsumeTimes(Events.intOf(options, "max_reconsume_times", -1));
        consumer.subscribe(options.getString("topic"), selectorOf(options));
        if (options.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                context.setSuspendCurrentQueueTimeMillis(SUSPEND_MS);
                return received(messages, failBelow)
                    ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                    : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                received(messages, failBelow) ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        }
        consumer.start();
        Events.ready();
        for (JSONObject command = Events.read(); command != null; command = Events.read()) {
            consumer.subscribe(command.getString("topic"), selectorOf(command));
            Events.emit("subscribed", event -> { });
        }
        consumer.shutdown();
    }

    private static void consumeLite(String namesrv, String group, JSONObject options)
        throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group, hookOf(options));
        consumer.setNamesrvAddr(namesrv);
        consumer.setClientIP("127.0.0.1");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(Events.intOf(options, "poll_ms", 30000));
        consumer.setHeartbeatBrokerInterval(Events.intOf(options, "heartbeat_ms", 30000));
        consumer.subscribe(options.getString("topic"), selectorOf(options));
        consumer.start();
        Thread poller = new Thread(() -> {
            while (!Thread.currentThread().isInterrupted()) {
                received(consumer.poll(LITE_POLL_MS), 0);
            }
        }, "poller");
        poller.start();
        Events.ready();
        awaitStop();
        poller.interrupt();
        poller.join();
        consumer.commitSync();
        consumer.shutdown();
    }

    /** Signs every request, if the options name an account. */
    private static RPCHook hookOf(JSONObject options) {
        String accessKey = options.getString("access_key");
        return accessKey == null ? null : new AclClientRPCHook(
            new SessionCredentials(accessKey, options.getString("secret_key")));
    }

    /** By tags; by SQL92 if "sql" is given instead of "expression". */
    private static MessageSelector selectorOf(JSONObject options) {
        String sql = options.getString("sql");
        if (sql != null) {
            return MessageSelector.bySql(sql);
        }
        String expression = options.getString("expression");
        return MessageSelector.byTag(expression == null ? "*" : expression);
    }

    private static void awaitStop() throws IOException {
        while (Events.read() != null) {
            continue;
        }
    }

    /** Report deliveries; true if one of them is to fail. */
    private static boolean received(List<MessageExt> messages, int failBelow) {
        boolean fail = false;
        for (MessageExt message : messages) {
            Events.emit("message", event -> event.putAll(Events.describe(message)));
            fail |= message.getReconsumeTimes() < failBelow;
        }
        return fail;
    }

    static void sent(Integer id, SendResult result) {
        Events.emit("sent", event -> {
            event.put("id", id);
            event.put("status", result == null ? "ONEWAY" : result.getSendStatus().name());
            if (result == null) {
                event.put("msg_id", null);
                event.put("queue_offset", null);
                return;
            }
            event.put("msg_id", result.getMsgId());
            event.put("queue_offset", result.getQueueOffset());
            event.put("offset_msg_id", result.getOffsetMsgId());
            event.put("broker", result.getMessageQueue().getBrokerName());
            event.put("queue_id", result.getMessageQueue().getQueueId());
        });
    }

    private JavaDriver() {
    }
}
