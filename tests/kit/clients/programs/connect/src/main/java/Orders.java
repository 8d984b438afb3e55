/*
 * Reads a topic of `format: debezium-avro` with Apicurio's AvroConverter, as a sink of Kafka Connect does, and prints
 * the table that it makes with Connect's JsonConverter.
 */
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import io.apicurio.registry.utils.converter.AvroConverter;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.json.JsonConverter;

public class Orders {
    public static void main(String[] args) {
        var settings = Map.<String, Object>of("bootstrap.servers", args[0], "isolation.level", "read_committed");
        var registry = Map.of(
                "apicurio.registry.url", args[1] + "/apis/registry/v2",
                "apicurio.registry.as-confluent", "true",
                "apicurio.registry.use-id", "contentId",
                "apicurio.registry.headers.enabled", "false"); // the ID is in the value
        var values = new AvroConverter<Object>();
        values.configure(registry, false);
        var keys = new AvroConverter<Object>();
        keys.configure(registry, true);
        var json = new JsonConverter();
        json.configure(Map.of("schemas.enable", "false", "decimal.format", "NUMERIC"), false);
        var rows = new TreeMap<String, Struct>();
        var counters = new HashMap<TopicPartition, Long>();
        var records = 0;
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
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
                    var key = keys.toConnectData(record.topic(), record.key()).value().toString();
                    var value = (Struct) values.toConnectData(record.topic(), record.value()).value();
                    var after = value == null ? null : value.getStruct("after"); // null: a tombstone
                    rows.compute(key, (each, before) -> after); // null removes the row
                    records++;
                }
            }
        }
        var output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (var row : rows.values()) {
            output.println(new String(json.fromConnectData(args[2], row.schema(), row), StandardCharsets.UTF_8));
        }
        output.flush();
        System.err.printf("%d records, %d rows%n", records, rows.size());
    }
}
