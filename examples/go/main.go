// Prints the rows of a table, kept from a topic of `format: avro`, and fails if a record is missing.
//
//	go build -o subscriber .
//	./subscriber localhost:9092 http://localhost:8081 public.shop.orders
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/hamba/avro/v2"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
)

func main() {
	ctx, topic := context.Background(), os.Args[3]
	client := must(kgo.NewClient(kgo.SeedBrokers(strings.Split(os.Args[1], ",")...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords())) // the last record of a partition may be the end of a transaction
	starts := must(kadm.NewClient(client).ListStartOffsets(ctx, topic))[topic]
	ends := must(kadm.NewClient(client).ListCommittedOffsets(ctx, topic))
	maps.DeleteFunc(must(ends[topic], ends.Error()), func(p int32, end kadm.ListedOffset) bool { return starts[p].Offset == end.Offset })
	registry, schemas := must(sr.NewClient(sr.URLs(os.Args[2]))), map[int]avro.Schema{}
	decode := func(framed []byte, value any) {
		id, body, err := new(sr.ConfluentHeader).DecodeID(framed)
		if must(id, err); schemas[id] == nil {
			schemas[id] = must(avro.Parse(must(registry.SchemaByID(ctx, id)).Schema))
		}
		must(value, avro.Unmarshal(schemas[id], body, value))
	}
	rows, counters, records := map[string]*map[string]any{}, map[int32]int{}, 0
	for len(ends[topic]) > 0 {
		fetches := client.PollFetches(ctx)
		for _, record := range must(fetches.Records(), fetches.Err()) {
			end := ends[topic][record.Partition].Offset // 0 if the partition has been read
			if record.Offset+1 >= end {
				delete(ends[topic], record.Partition)
			}
			if record.Offset >= end || record.Attrs.IsControl() {
				continue
			}
			at := slices.IndexFunc(record.Headers, func(each kgo.RecordHeader) bool { return each.Key == "n" })
			n := must(strconv.Atoi(string(record.Headers[at].Value)))
			if last := counters[record.Partition]; last > 0 && n != last+1 {
				log.Fatalf("partition %d: n is %d after %d", record.Partition, n, last)
			}
			counters[record.Partition], records = n, records+1
			var key map[string]any
			var value struct {
				After *map[string]any `avro:"after"` // nil after a delete
			}
			decode(record.Key, &key)
			if record.Value != nil { // nil is a tombstone
				decode(record.Value, &value)
			}
			row := string(must(json.Marshal(key)))
			if rows[row] = value.After; value.After == nil {
				delete(rows, row)
			}
		}
	}
	for _, row := range rows {
		fmt.Println(string(must(json.Marshal(row))))
	}
	fmt.Fprintf(os.Stderr, "%d records, %d rows\n", records, len(rows))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
