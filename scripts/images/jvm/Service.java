import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.TreeMap;
import java.util.concurrent.Executors;
import java.util.stream.IntStream;

/** Answers on port 8084 with what it computed: the ten most frequent digit sums of the first 100,000 numbers. */
public class Service {
    static String report() {
        var counts = new TreeMap<Integer, Integer>();
        IntStream.range(0, 100_000)
                .map(number -> String.valueOf(number).chars().map(digit -> digit - '0').sum())
                .forEach(sum -> counts.merge(sum, 1, Integer::sum));
        var lines = new StringBuilder();
        counts.entrySet().stream()
                .sorted((one, other) -> other.getValue() - one.getValue())
                .limit(10)
                .forEach(entry -> lines.append(String.format("%d: %d%n", entry.getKey(), entry.getValue())));
        return lines.toString();
    }

    public static void main(String[] arguments) throws Exception {
        var answer = report().getBytes(StandardCharsets.UTF_8);
        var server = HttpServer.create(new InetSocketAddress("127.0.0.1", 8084), 16);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", exchange -> {
            exchange.sendResponseHeaders(200, answer.length);
            try (var body = exchange.getResponseBody()) {
                body.write(answer);
            }
        });
        server.start();
    }
}
