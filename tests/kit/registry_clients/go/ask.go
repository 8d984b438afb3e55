// Asks a registry with franz-go's sr and decodes with hamba/avro: ask REGISTRY TOPIC FRAME (in hex). Prints JSON.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	"github.com/hamba/avro/v2"
	"github.com/twmb/franz-go/pkg/sr"
)

func main() {
	answers, err := ask(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	json.NewEncoder(os.Stdout).Encode(answers)
}

func ask(registry, topic, frame string) (map[string]any, error) {
	ctx := context.Background()
	client, err := sr.NewClient(sr.URLs(registry))
	if err != nil {
		return nil, err
	}
	octets, err := hex.DecodeString(frame)
	if err != nil {
		return nil, err
	}
	id, body, err := new(sr.ConfluentHeader).DecodeID(octets)
	if err != nil {
		return nil, err
	}
	schema, err := client.SchemaByID(ctx, id)
	if err != nil {
		return nil, err
	}
	parsed, err := avro.Parse(schema.Schema)
	if err != nil {
		return nil, err
	}
	var row map[string]any
	if err := avro.Unmarshal(parsed, body, &row); err != nil {
		return nil, err
	}
	subject := topic + "-value"
	latest, err := client.SchemaByVersion(ctx, subject, -1)
	if err != nil {
		return nil, err
	}
	first, err := client.SchemaByVersion(ctx, subject, 1)
	if err != nil {
		return nil, err
	}
	subjects, err := client.Subjects(ctx)
	if err != nil {
		return nil, err
	}
	versions, err := client.SubjectVersions(ctx, subject)
	if err != nil {
		return nil, err
	}
	uses, err := client.SchemaUsagesByID(ctx, id)
	if err != nil {
		return nil, err
	}
	found, err := client.LookupSchema(ctx, subject, schema)
	if err != nil {
		return nil, err
	}
	compatible, err := client.CheckCompatibility(ctx, subject, -1, schema)
	if err != nil {
		return nil, err
	}
	levels := client.Compatibility(ctx, subject)
	if levels[0].Err != nil {
		return nil, levels[0].Err
	}
	types, err := client.SupportedTypes(ctx)
	if err != nil {
		return nil, err
	}
	var users []string
	for _, use := range uses {
		users = append(users, use.Subject)
	}
	return map[string]any{
		"row": row, "schema": json.RawMessage(schema.Schema), "latest": latest.ID, "first": first.ID, "subjects": subjects,
		"versions": versions, "users": users, "id": found.ID, "compatible": compatible.Is,
		"level": levels[0].Level.String(), "types": types,
	}, nil
}
