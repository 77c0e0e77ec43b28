import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import com.alibaba.fastjson.util.TypeUtils;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Java's admin client, method by method: what it returns as JSON, or the code of its error. */
final class Calls {
    static void run(String namesrv) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(5000L);
        admin.setInstanceName("calls");
        admin.setNamesrvAddr(namesrv);
        admin.start();
        Events.ready();
        for (JSONObject command = Events.read(); command != null; command = Events.read()) {
            JSONObject asked = command;
            Map<String, Object> answer = new JSONObject();
            try {
                // Maps of queues have keys that are objects: as strings they are still JSON.
                answer.put("result", JSON.toJSONString(
                    call(admin, asked.getString("method"), asked.getJSONArray("arguments")),
                    SerializerFeature.WriteNonStringKeyAsString,
                    SerializerFeature.DisableCircularReferenceDetect));
            } catch (InvocationTargetException error) {
                answer.put("error", error.getCause().getClass().getSimpleName());
                answer.put("code", codeOf(error.getCause()));
            }
            Events.emit("answer", event -> {
                event.put("id", asked.getInteger("id"));
                event.putAll(answer);
            });
        }
        admin.shutdown();
    }

    private static Object call(DefaultMQAdminExt admin, String name, JSONArray given)
        throws Exception {
        for (Method method : DefaultMQAdminExt.class.getMethods()) {
            Class<?>[] types = method.getParameterTypes();
            if (!method.getName().equals(name) || types.length != given.size() || !fit(types, given)) {
                continue;
            }
            Object[] arguments = new Object[types.length];
            for (int at = 0; at < types.length; at++) {
                arguments[at] = types[at] == Set.class
                    ? new HashSet<>(given.getJSONArray(at))
                    : TypeUtils.castToJavaBean(given.get(at), types[at]);
            }
            return method.invoke(admin, arguments);
        }
        throw new IllegalArgumentException(name + " does not take " + given);
    }

    /** Tells overloads with as many arguments apart: text is for text, and for nothing else. */
    private static boolean fit(Class<?>[] types, JSONArray given) {
        for (int at = 0; at < types.length; at++) {
            if (given.get(at) != null && types[at] == String.class != given.get(at) instanceof String) {
                return false;
            }
        }
        return true;
    }

    private static Object codeOf(Throwable error) throws Exception {
        try {
            return error.getClass().getMethod("getResponseCode").invoke(error);
        } catch (NoSuchMethodException none) {
            return null;
        }
    }

    private Calls() {
    }
}
