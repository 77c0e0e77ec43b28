import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.TreeSet;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Messages looked up one way or the other, with the pull consumer: by their place in a queue
 * ("drain", all of a topic), in the log ("view"), by key ("query") and by time ("search").
 */
final class Reader {
    private static final int QUERY_MAX = 64;
    private static final int PULL_MAX = 32;
    private static final int HEARTBEAT_MS = 1000;

    static void run(String namesrv, String group) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setClientIP("127.0.0.1");
        // A broker's version comes with the answer to a heartbeat; SQL92 waits for that.
        consumer.setHeartbeatBrokerInterval(HEARTBEAT_MS);
        consumer.start();
        Events.ready();
        for (JSONObject command = Events.read(); command != null; command = Events.read()) {
            Integer id = command.getInteger("id");
            try {
                JSONObject answer = answer(consumer, command);
                Events.emit("answer", event -> {
                    event.put("id", id);
                    event.putAll(answer);
                });
            } catch (Exception error) {
                Events.failed(id, error);
            }
        }
        consumer.shutdown();
    }

    private static JSONObject answer(DefaultMQPullConsumer consumer, JSONObject command)
        throws Exception {
        String topic = command.getString("topic");
        JSONObject answer = new JSONObject();
        JSONArray messages = new JSONArray();
        switch (command.getString("op")) {
            case "drain":
                for (MessageQueue queue : new TreeSet<>(
                    consumer.fetchSubscribeMessageQueues(topic))) {
                    drain(consumer, queue, selectorOf(command), messages);
                }
                break;
            case "view":
                messages.add(Events.describe(consumer.viewMessage(command.getString("msg_id"))));
                break;
            case "query":
                QueryResult found = consumer.queryMessage(
                    topic, command.getString("key"), QUERY_MAX, 0, Long.MAX_VALUE);
                for (MessageExt message : found.getMessageList()) {
                    messages.add(Events.describe(message));
                }
                break;
            case "search":
                MessageQueue queue = new MessageQueue(
                    topic, command.getString("broker"), command.getInteger("queue_id"));
                answer.put("offset",
                    consumer.searchOffset(queue, command.getLong("timestamp")));
                break;
            default:
                throw new IllegalArgumentException("no op " + command.getString("op"));
        }
        answer.put("messages", messages);
        return answer;
    }

    private static void drain(
        DefaultMQPullConsumer consumer, MessageQueue queue, MessageSelector selector,
        JSONArray messages)
        throws Exception {
        long offset = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        while (offset < end) {
            PullResult result = consumer.pull(queue, selector, offset, PULL_MAX);
            switch (result.getPullStatus()) {
                case FOUND:
                    for (MessageExt message : result.getMsgFoundList()) {
                        messages.add(Events.describe(message));
                    }
                    break;
                case NO_MATCHED_MSG:
                    break;
                default:
                    throw new IllegalStateException(queue + " at " + offset + ": " + result);
            }
            offset = result.getNextBeginOffset();
        }
    }

    private static MessageSelector selectorOf(JSONObject command) {
        String sql = command.getString("sql");
        return sql == null
            ? MessageSelector.byTag(command.getString("expression")) : MessageSelector.bySql(sql);
    }

    private Reader() {
    }
}
