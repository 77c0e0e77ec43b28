import com.alibaba.fastjson.JSONObject;

/** Counts of nanoseconds in log-linear buckets, 64 to each power of two: 1.6 % wide. */
final class Histogram {
    private static final int SHIFT_MAX = 57;

    private final long[] counts = new long[(SHIFT_MAX + 2) * 64];
    private long count;
    private long total;
    private long largest;

    void add(long nanos) {
        long value = Math.max(0, nanos);
        int shift = Math.max(0, 57 - Long.numberOfLeadingZeros(value | 1));
        counts[shift * 64 + (int) (value >>> shift)]++;
        count++;
        total += value;
        largest = Math.max(largest, value);
    }

    void add(Histogram other) {
        for (int index = 0; index < counts.length; index++) {
            counts[index] += other.counts[index];
        }
        count += other.count;
        total += other.total;
        largest = Math.max(largest, other.largest);
    }

    long count() {
        return count;
    }

    /** The figures of a report; without a single value there are none. */
    void report(JSONObject figures, String prefix) {
        if (count == 0) {
            return;
        }
        figures.put(prefix + "avg_ms", total / 1e6 / count);
        figures.put(prefix + "p50_ms", percentile(0.50) / 1e6);
        figures.put(prefix + "p90_ms", percentile(0.90) / 1e6);
        figures.put(prefix + "p99_ms", percentile(0.99) / 1e6);
        figures.put(prefix + "p999_ms", percentile(0.999) / 1e6);
        figures.put(prefix + "max_ms", largest / 1e6);
    }

    private double percentile(double part) {
        long left = (long) Math.ceil(part * count);
        for (int index = 0; index < counts.length; index++) {
            left -= counts[index];
            if (left <= 0) {
                int shift = index < 128 ? 0 : index / 64 - 1;
                return Math.min(largest, (index - shift * 64 + 0.5) * Math.pow(2, shift));
            }
        }
        return largest;
    }
}
