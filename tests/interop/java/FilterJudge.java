import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * What RocketMQ's filter module makes of expressions and properties. Reads lines of JSON with
 * "expression" and "properties"; answers each with one word: invalid, null, true, false, exception,
 * or the class of a result of another type.
 */
public final class FilterJudge {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, false, "UTF-8");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(verdict(JSON.parseObject(line)));
        }
        answers.flush();
    }

    private static String verdict(JSONObject question) {
        Expression expression;
        try {
            expression = SelectorParser.parse(question.getString("expression"));
        } catch (MQFilterException error) {
            return "invalid";
        }
        JSONObject properties = question.getJSONObject("properties");
        try {
            Object result = expression.evaluate(new EvaluationContext() {
                @Override
                public Object get(String name) {
                    return properties.getString(name);
                }

                @Override
                public Map<String, Object> keyValues() {
                    return properties;
                }
            });
            return result == null || result instanceof Boolean
                ? String.valueOf(result) : result.getClass().getName();
        } catch (Throwable error) {
            return "exception";
        }
    }

    private FilterJudge() {
    }
}
