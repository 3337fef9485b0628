// The driver drives the Go client for the conformance kit: it reads commands from standard input, and writes answers to standard
// output.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"sort"
	"sync"
	"time"

	snowmint "github.com/snowmint/snowmint/clients/go"
)

// An age in ms; null is unlimited.
type age time.Duration

func (a *age) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*a = age(snowmint.Unlimited)
		return nil
	}
	var ms int64
	err := json.Unmarshal(text, &ms)
	*a = age(time.Duration(ms) * time.Millisecond)
	return err
}

type options struct {
	Servers           []string       `json:"servers"`
	Order             string         `json:"order"`
	Token             string         `json:"token"`
	TokenFile         string         `json:"token_file"`
	CAFile            string         `json:"ca_file"`
	ClientCertificate [2]string      `json:"client_certificate"`
	Store             string         `json:"store"`
	Timeout           int64          `json:"timeout_ms"`
	HedgeAfter        age            `json:"hedge_after_ms"`
	MaxAge            age            `json:"max_age_ms"`
	NamespaceMaxAge   map[string]age `json:"namespace_max_age_ms"`
	Buffer            *[2]int        `json:"buffer"`
}

func (o options) open() (*snowmint.Client, error) {
	certificate := snowmint.KeyPair{CertFile: o.ClientCertificate[0], KeyFile: o.ClientCertificate[1]}
	opened := snowmint.Options{
		Servers: o.Servers, Token: o.Token, TokenFile: o.TokenFile, CAFile: o.CAFile, ClientCertificate: certificate,
		Store: o.Store, Timeout: time.Duration(o.Timeout) * time.Millisecond, HedgeAfter: time.Duration(o.HedgeAfter),
		MaxAge: time.Duration(o.MaxAge), NamespaceMaxAge: map[string]time.Duration{},
	}
	if o.Order == "as_listed" {
		opened.Order = snowmint.AsListed
	}
	for name, age := range o.NamespaceMaxAge {
		opened.NamespaceMaxAge[name] = time.Duration(age)
	}
	if o.Buffer != nil {
		opened.Buffer = &snowmint.BufferSize{Min: o.Buffer[0], Max: o.Buffer[1]}
	}
	return snowmint.New(opened)
}

type command struct {
	ID        int64           `json:"id"`
	Op        string          `json:"op"`
	Namespace string          `json:"namespace"`
	Texts     bool            `json:"texts"`
	Count     *int            `json:"count"`
	Options   json.RawMessage `json:"options"`
	Threads   int             `json:"threads"`
	Each      int             `json:"each"`
	To        string          `json:"to"`
}

type answer map[string]any

// failed returns an error as the kit reads it.
func failed(err error) answer {
	var e *snowmint.Error
	if !errors.As(err, &e) {
		e = &snowmint.Error{Kind: snowmint.InvalidOption, Detail: err.Error()}
	}
	shown := answer{
		"kind": e.Kind.String(), "temporary": e.Temporary(), "server": nil, "status": nil, "retry_after_ms": nil,
		"message": err.Error(),
	}
	if e.Server != "" {
		shown["server"] = e.Server
	}
	if e.Status != 0 {
		shown["status"] = e.Status
	}
	if e.RetryAfter != 0 {
		shown["retry_after_ms"] = e.RetryAfter.Milliseconds()
	}
	return answer{"error": shown}
}

func withIDs[T snowmint.ID | string](ids []T, err error) answer {
	if err != nil {
		return failed(err)
	}
	return answer{"ids": append([]T{}, ids...)}
}

// A handle is that of numbers or of texts.
type handle[T snowmint.ID | string] interface {
	Next(ctx context.Context) (T, error)
	NextN(ctx context.Context, count int) ([]T, error)
	TryNext() (T, bool, error)
	Buffered() int
	DiscardBuffered()
}

// runCall runs a command for the ids of a namespace. The answer is nil if it is another one.
func runCall[T snowmint.ID | string](ids handle[T], c command) answer {
	ctx := context.Background()
	switch c.Op {
	case "next":
		if c.Count != nil {
			return withIDs(ids.NextN(ctx, *c.Count))
		}
		id, err := ids.Next(ctx)
		return withIDs([]T{id}, err)
	case "try_next":
		id, ok, err := ids.TryNext()
		if !ok {
			return withIDs[T](nil, err)
		}
		return withIDs([]T{id}, nil)
	case "buffered":
		return answer{"buffered": ids.Buffered()}
	case "discard_buffered":
		ids.DiscardBuffered()
		return answer{}
	}
	return nil
}

func run(client *snowmint.Client, c command) answer {
	ids := client.Namespace(c.Namespace)
	done := answer(nil)
	if c.Texts {
		done = runCall[string](client.Texts(c.Namespace), c)
	} else {
		done = runCall[snowmint.ID](ids, c)
	}
	if done != nil {
		return done
	}
	switch c.Op {
	case "stats":
		stats := client.Stats()
		return answer{"requests": stats.Requests, "hedged": stats.Hedged, "failed": stats.Failed}
	case "store":
		if store := client.Store(); store != "" {
			return answer{"store": store}
		}
		return answer{"store": nil}
	case "fork":
		return answer{"unsupported": true}
	case "draw":
		return draw(ids, c)
	case "bench":
		return bench(ids, c)
	}
	return failed(fmt.Errorf("unknown command %q", c.Op))
}

// draw draws ids in goroutines, one a call, into a file.
func draw(ids *snowmint.Namespace, c command) answer {
	type drawn struct {
		ids    []snowmint.ID
		errors int
		first  error
	}
	all := make([]drawn, c.Threads)
	var group sync.WaitGroup
	for i := range all {
		group.Add(1)
		go func(d *drawn) {
			defer group.Done()
			d.ids = make([]snowmint.ID, 0, c.Each)
			for n := 0; n < c.Each; n++ {
				id, err := ids.Next(context.Background())
				if err == nil {
					d.ids = append(d.ids, id)
					continue
				}
				if d.errors++; d.first == nil {
					d.first = err
				}
			}
		}(&all[i])
	}
	group.Wait()
	file, err := os.Create(c.To)
	if err != nil {
		return failed(err)
	}
	output := bufio.NewWriter(file)
	sum, errs, first := 0, 0, any(nil)
	for _, d := range all {
		if err := binary.Write(output, binary.LittleEndian, d.ids); err != nil {
			return failed(err)
		}
		if sum, errs = sum+len(d.ids), errs+d.errors; d.first != nil {
			first = failed(d.first)["error"]
		}
	}
	if err := output.Flush(); err != nil {
		return failed(err)
	}
	if err := file.Close(); err != nil {
		return failed(err)
	}
	return answer{"drawn": sum, "errors": errs, "first_error": first}
}

// bench measures calls for one id in one goroutine.
func bench(ids *snowmint.Namespace, c command) answer {
	ctx, count := context.Background(), 1_000_000
	if c.Count != nil && *c.Count > 0 {
		count = *c.Count
	}
	// The buffer grows with the use.
	for n := 0; n < count/10; n++ {
		if _, err := ids.Next(ctx); err != nil {
			return failed(err)
		}
	}
	began := time.Now()
	for n := 0; n < count; n++ {
		if _, err := ids.Next(ctx); err != nil {
			return failed(err)
		}
	}
	took := time.Since(began)
	each := make([]time.Duration, 0, 100_000)
	for n := 0; n < count && n < cap(each); n++ {
		began := time.Now()
		if _, err := ids.Next(ctx); err != nil {
			return failed(err)
		}
		each = append(each, time.Since(began))
	}
	sort.Slice(each, func(a, b int) bool { return each[a] < each[b] })
	p999 := each[len(each)*999/1000]
	return answer{"ns_each": float64(took.Nanoseconds()) / float64(count), "p999_us": float64(p999.Nanoseconds()) / 1000}
}

func main() {
	var lock sync.Mutex
	output := json.NewEncoder(os.Stdout)
	reply := func(id int64, a answer) {
		a["id"] = id
		lock.Lock()
		defer lock.Unlock()
		if err := output.Encode(a); err != nil {
			log.Fatal(err)
		}
	}
	// The kit expects a client to be there before the first one is opened: a closed one.
	client, err := snowmint.New(snowmint.Options{Servers: []string{"http://localhost"}})
	if err != nil {
		log.Fatal(err)
	}
	client.Close()
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 1<<20)
	for input.Scan() {
		var c command
		if err := json.Unmarshal(input.Bytes(), &c); err != nil {
			log.Fatal(err)
		}
		switch c.Op {
		case "open":
			var o options
			err := json.Unmarshal(c.Options, &o)
			if err == nil {
				var opened *snowmint.Client
				if opened, err = o.open(); err == nil {
					client = opened
				}
			}
			if err != nil {
				reply(c.ID, failed(err))
			} else {
				reply(c.ID, answer{})
			}
		case "close":
			client.Close()
			reply(c.ID, answer{})
		default:
			go func(client *snowmint.Client) { reply(c.ID, run(client, c)) }(client)
		}
	}
	if err := input.Err(); err != nil {
		log.Fatal(err)
	}
}
