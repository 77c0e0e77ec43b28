import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.function.Consumer;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;

/** JSON lines: commands come on stdin, events go to stdout. */
final class Events {
    private static final int BODY_SHOWN_MAX = 2000;
    private static final PrintStream EVENTS = System.out;
    private static final BufferedReader COMMANDS =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

    /** To call first: the library prints to stdout now and then, which is the events' alone. */
    static void takeStdout() {
        System.setOut(System.err);
    }

    /** The next command; null at the end of input and when told to stop. */
    static JSONObject read() throws IOException {
        String line = COMMANDS.readLine();
        JSONObject command = line == null ? null : JSON.parseObject(line);
        return command == null || command.getString("op").equals("stop") ? null : command;
    }

    static void emit(String name, Consumer<JSONObject> fill) {
        JSONObject event = new JSONObject(true);
        event.put("event", name);
        fill.accept(event);
        byte[] line = (JSON.toJSONString(event, SerializerFeature.WriteMapNullValue,
            SerializerFeature.DisableCircularReferenceDetect) + "\n")
            .getBytes(StandardCharsets.UTF_8);
        synchronized (EVENTS) {
            EVENTS.write(line, 0, line.length);
            EVENTS.flush();
        }
    }

    static void ready() {
        emit("ready", event -> event.put("client", "java"));
    }

    static void failed(Integer id, Throwable error) {
        emit("failed", event -> {
            event.put("id", id);
            // A producer that has tried again says in its cause why the last attempt failed.
            String cause = error.getCause() == null ? "" : ", cause: " + error.getCause();
            event.put("error", error + cause);
        });
    }

    static JSONObject describe(MessageExt message) {
        byte[] body = message.getBody();
        JSONObject shown = new JSONObject(true);
        shown.put("topic", message.getTopic());
        shown.put("body", body.length <= BODY_SHOWN_MAX
            ? new String(body, StandardCharsets.UTF_8) : null);
        shown.put("size", body.length);
        shown.put("sha256", sha256(body));
        shown.put("tags", message.getTags());
        shown.put("keys", message.getKeys());
        shown.put("queue_id", message.getQueueId());
        shown.put("queue_offset", message.getQueueOffset());
        shown.put("commit_log_offset", message.getCommitLogOffset());
        shown.put("msg_id", message.getMsgId());
        shown.put("offset_msg_id", message instanceof MessageClientExt
            ? ((MessageClientExt) message).getOffsetMsgId() : null);
        shown.put("broker", message.getBrokerName());
        shown.put("reconsume_times", message.getReconsumeTimes());
        shown.put("born_timestamp", message.getBornTimestamp());
        shown.put("store_timestamp", message.getStoreTimestamp());
        shown.put("store_size", message.getStoreSize());
        shown.put("properties", message.getProperties());
        return shown;
    }

    static int intOf(JSONObject options, String name, int otherwise) {
        return options.containsKey(name) ? options.getInteger(name) : otherwise;
    }

    private static String sha256(byte[] body) {
        try {
            StringBuilder text = new StringBuilder();
            for (byte one : MessageDigest.getInstance("SHA-256").digest(body)) {
                text.append(String.format("%02x", one));
            }
            return text.toString();
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    private Events() {
    }
}
