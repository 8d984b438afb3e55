// BOOTSTRAP REGISTRY TOPIC: keeps the rows of a topic of `format: avro` with Confluent's client alone.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde/avrov2"
)

const timeoutMs = 30_000

type order struct {
	ID       int64   `avro:"id" json:"id"`
	Customer *string `avro:"customer" json:"customer"`
	Price    string  `avro:"price" json:"price"`
	Paid     int     `avro:"paid" json:"paid"`
	Created  *string `avro:"created" json:"created"`
	Note     *string `avro:"note" json:"note"`
}

type orderKey struct {
	ID int64 `avro:"id"`
}

type change struct {
	After *order `avro:"after"`
}

func main() {
	topic := os.Args[3]
	registry := must(schemaregistry.NewClient(schemaregistry.NewConfig(os.Args[2])))
	keys := must(avrov2.NewDeserializer(registry, serde.KeySerde, avrov2.NewDeserializerConfig()))
	values := must(avrov2.NewDeserializer(registry, serde.ValueSerde, avrov2.NewDeserializerConfig()))
	consumer := must(kafka.NewConsumer(&kafka.ConfigMap{
		"bootstrap.servers":    os.Args[1],
		"group.id":             "client-go",
		"isolation.level":      "read_committed",
		"enable.auto.commit":   false,
		"enable.partition.eof": true,
		"check.crcs":           true,
	}))
	unread := map[int32]bool{}
	places := []kafka.TopicPartition{}
	for _, partition := range must(consumer.GetMetadata(&topic, false, timeoutMs)).Topics[topic].Partitions {
		unread[partition.ID] = true
		places = append(places, kafka.TopicPartition{Topic: &topic, Partition: partition.ID, Offset: kafka.OffsetBeginning})
	}
	must(places, consumer.Assign(places))
	rows, counters, records := map[int64]order{}, map[int32]int{}, 0
	for len(unread) > 0 {
		switch event := consumer.Poll(timeoutMs).(type) {
		case kafka.PartitionEOF:
			delete(unread, event.Partition)
		case kafka.Error:
			log.Fatal(event)
		case *kafka.Message:
			partition, n := event.TopicPartition.Partition, counter(event)
			if last := counters[partition]; last > 0 && n != last+1 {
				log.Fatalf("partition %d: n is %d after %d", partition, n, last)
			}
			counters[partition], records = n, records+1
			var key orderKey
			var value change
			must(key, keys.DeserializeInto(topic, event.Key, &key))
			must(value, values.DeserializeInto(topic, event.Value, &value)) // a tombstone changes nothing
			if value.After != nil {
				rows[key.ID] = *value.After
			} else {
				delete(rows, key.ID)
			}
		}
	}
	for _, row := range rows {
		fmt.Println(string(must(json.Marshal(row))))
	}
	fmt.Fprintf(os.Stderr, "%d records, %d rows\n", records, len(rows))
}

func counter(message *kafka.Message) int {
	for _, header := range message.Headers {
		if header.Key == "n" {
			return must(strconv.Atoi(string(header.Value)))
		}
	}
	return 0
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
