// The bench measures calls for one id: of Snowmint, and of generators that run in the process. It prints one line of JSON a row,
// with the best of several runs.
//
// SNOWMINT_SERVER is the URL of a server with the namespaces `orders` (a segment, numbers) and `default` (a snowflake layout).
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/bwmarrin/snowflake"
	"github.com/google/uuid"
	snowmint "github.com/snowmint/snowmint/clients/go"
	"github.com/sony/sonyflake"
)

const (
	runs = 5
	// runTime is about how long a run takes.
	runTime = 300 * time.Millisecond
	// pacedCalls is the number of calls at a steady rate, for p99.9.
	pacedCalls = 100_000
	pace       = 10 * time.Microsecond
)

// A generator makes one id a call.
type generator struct {
	row  string
	next func() error
	// isPaced: the latency of a call is measured at 100,000 calls a second too.
	isPaced bool
}

type row struct {
	Row  string   `json:"row"`
	NS   float64  `json:"ns"`
	P999 *float64 `json:"p999_us,omitempty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	client, err := snowmint.New(snowmint.Options{
		Servers:         []string{os.Getenv("SNOWMINT_SERVER")},
		NamespaceMaxAge: map[string]time.Duration{"orders": snowmint.Unlimited},
	})
	if err != nil {
		return err
	}
	defer client.Close()
	node, err := snowflake.NewNode(1)
	if err != nil {
		return err
	}
	sony := sonyflake.NewSonyflake(sonyflake.Settings{MachineID: func() (uint16, error) { return 1, nil }})
	ctx, orders, ids := context.Background(), client.Namespace("orders"), client.Namespace("default")
	generators := []generator{
		{"snowmint Next(), numbers", func() error { _, err := orders.Next(ctx); return err }, true},
		{"snowmint Next(), snowflake", func() error { _, err := ids.Next(ctx); return err }, true},
		{"google/uuid v4", func() error { _, err := uuid.NewRandom(); return err }, false},
		{"bwmarrin/snowflake", func() error { node.Generate(); return nil }, false},
		{"sony/sonyflake", func() error { _, err := sony.NextID(); return err }, false},
	}
	output := json.NewEncoder(os.Stdout)
	output.SetEscapeHTML(false)
	for _, g := range generators {
		measured, err := g.measure()
		if err != nil {
			return fmt.Errorf("%s: %w", g.row, err)
		}
		if err := output.Encode(measured); err != nil {
			return err
		}
	}
	return nil
}

func (g generator) measure() (row, error) {
	measured := row{Row: g.row}
	// The first runs warm up, and find out how many calls a run takes.
	calls := 100
	for n := 0; n < runs; {
		began := time.Now()
		for i := 0; i < calls; i++ {
			if err := g.next(); err != nil {
				return row{}, err
			}
		}
		took := time.Since(began)
		if took < runTime/2 {
			calls *= 2
			continue
		}
		if each := float64(took.Nanoseconds()) / float64(calls); n == 0 || each < measured.NS {
			measured.NS = each
		}
		n++
	}
	if !g.isPaced {
		return measured, nil
	}
	for n := 0; n < runs; n++ {
		p999, err := g.paced()
		if err != nil {
			return row{}, err
		}
		if measured.P999 == nil || p999 < *measured.P999 {
			measured.P999 = &p999
		}
	}
	return measured, nil
}

// paced returns the p99.9 of a call in µs at 100,000 calls a second.
func (g generator) paced() (float64, error) {
	latencies := make([]time.Duration, 0, pacedCalls)
	due := time.Now()
	for n := 0; n < pacedCalls; n++ {
		// A sleep would be longer than the pace.
		for due = due.Add(pace); time.Now().Before(due); {
		}
		began := time.Now()
		if err := g.next(); err != nil {
			return 0, err
		}
		latencies = append(latencies, time.Since(began))
	}
	sort.Slice(latencies, func(a, b int) bool { return latencies[a] < latencies[b] })
	return float64(latencies[pacedCalls*999/1000].Nanoseconds()) / 1000, nil
}
