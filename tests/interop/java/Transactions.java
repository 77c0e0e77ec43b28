import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A transactional producer. Each send says what the local transaction came to ("local"), and what
 * checks are answered ("checked"): "commit", "rollback" or "unknown". "answer" changes the latter
 * for every message of this process, and an empty one gives each message its own again.
 */
final class Transactions {
    private final Map<String, String> local = new ConcurrentHashMap<>();
    private final Map<String, String> checked = new ConcurrentHashMap<>();
    private volatile String answer;

    static void run(TransactionMQProducer producer, JSONObject options) throws Exception {
        new Transactions().serve(producer, options);
    }

    private void serve(TransactionMQProducer producer, JSONObject options) throws Exception {
        answer = options.getString("answer");
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return stateOf(local.get(bodyOf(message)));
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                String body = bodyOf(message);
                String fixed = answer;
                String state = fixed == null || fixed.isEmpty() ? checked.get(body) : fixed;
                Events.emit("checked", event -> {
                    event.put("body", body);
                    event.put("state", state);
                    event.put("topic", message.getTopic());
                    event.put("queue_id", message.getQueueId());
                    event.put("transaction_id", message.getTransactionId());
                    event.put("properties", message.getProperties());
                });
                return stateOf(state);
            }
        });
        producer.start();
        Events.ready();
        for (JSONObject command = Events.read(); command != null; command = Events.read()) {
            if (command.getString("op").equals("answer")) {
                answer = command.getString("state");
                continue;
            }
            Integer id = command.getInteger("id");
            try {
                Message message = JavaDriver.message(command, command.getString("body"));
                local.put(command.getString("body"), orUnknown(command.getString("local")));
                checked.put(command.getString("body"), orUnknown(command.getString("checked")));
                TransactionSendResult result = producer.sendMessageInTransaction(message, null);
                JavaDriver.sent(id, result);
            } catch (Exception error) {
                Events.failed(id, error);
            }
        }
        producer.shutdown();
    }

    private static String bodyOf(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static String orUnknown(String state) {
        return state == null ? "unknown" : state;
    }

    private static LocalTransactionState stateOf(String state) {
        switch (orUnknown(state)) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }
}
