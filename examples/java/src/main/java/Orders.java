/*
 * Reads a topic of `format: avro` with kafka-clients and Apache Avro, and prints the table that it makes.
 *
 * Install: Java 17 or later and Maven, then mvn -q package
 * Run:     java -cp "target/*" Orders 127.0.0.1:9092 http://127.0.0.1:8081 avro.shop.orders
 */
import java.io.*;
import java.net.URI;
import java.net.http.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import org.apache.avro.*;
import org.apache.avro.generic.*;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Deserializer;

public record Orders(String registry, Map<Integer, Schema> schemas) implements Deserializer<GenericRecord> {
    public static void main(String[] args) {
        GenericData.get().addLogicalTypeConversion(new Conversions.DecimalConversion());
        var settings = Map.<String, Object>of("bootstrap.servers", args[0], "isolation.level", "read_committed");
        var avro = new Orders(args[1], new HashMap<>());
        var rows = new TreeMap<String, Object>();
        var counters = new HashMap<TopicPartition, Long>();
        var records = 0;
        try (var consumer = new KafkaConsumer<>(settings, avro, avro)) {
            var partitions = consumer.partitionsFor(args[2]).stream()
                    .map(each -> new TopicPartition(each.topic(), each.partition())).toList();
            var ends = consumer.endOffsets(partitions);
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    var partition = new TopicPartition(record.topic(), record.partition());
                    var n = Long.parseLong(new String(record.headers().lastHeader("n").value()));
                    var last = counters.put(partition, n);
                    if (last != null && n != last + 1) {
                        System.err.printf("%s: n is %d after %d%n", partition, n, last);
                        System.exit(1);
                    }
                    var after = record.value() == null ? null : record.value().get("after"); // null: a tombstone
                    rows.compute(record.key().toString(), (key, before) -> after); // null removes the row
                    records++;
                }
            }
        }
        var output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        rows.values().forEach(output::println); // Avro prints a record as JSON
        output.flush();
        System.err.printf("%d records, %d rows%n", records, rows.size());
    }

    @Override
    public GenericRecord deserialize(String topic, byte[] bytes) { // a byte 0, the schema's ID, the record
        try {
            var schema = schemas.computeIfAbsent(ByteBuffer.wrap(bytes).getInt(1), this::schema);
            var decoder = DecoderFactory.get().binaryDecoder(bytes, 5, bytes.length - 5, null);
            return new GenericDatumReader<GenericRecord>(schema).read(null, decoder);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private Schema schema(int id) {
        var request = HttpRequest.newBuilder(URI.create(registry + "/schemas/ids/" + id + "/schema")).build();
        var answer = HttpClient.newHttpClient().sendAsync(request, HttpResponse.BodyHandlers.ofString()).join();
        if (answer.statusCode() != 200) {
            throw new IllegalStateException("schema " + id + ": " + answer.body());
        }
        return new Schema.Parser().parse(answer.body());
    }
}
