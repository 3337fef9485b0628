package snowmint

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"math/rand"
	"strings"
	"sync"
	"time"
)

// Version is the version of this client.
const Version = "0.1.0"

// Client is a client of one or more Snowmint servers that share a store. Create one with [New] and share it: any number of
// goroutines may use it.
type Client struct {
	options    Options
	fetcher    *fetcher
	background context.Context
	cancel     context.CancelFunc

	mu         sync.Mutex
	isClosed   bool
	namespaces map[string]*Namespace
	texts      map[string]*Texts
}

// Stats are counts for metrics since the client was created. Buffered is the present number.
type Stats struct {
	// Requests is the number of requests sent to servers, including hedged ones.
	Requests uint64
	// Hedged is the number of requests sent to a second server because the first had not answered yet.
	Hedged uint64
	// Failed is the number of requests that failed, were rejected, or were abandoned.
	Failed uint64
	// Buffered is the number of ids in memory, of all namespaces.
	Buffered int
}

// New creates a client. It sends no request, and starts no goroutine. The error is an [*Error] of the kind [InvalidOption].
func New(options Options) (*Client, error) {
	client, err := newClient(options, systemClock())
	if err != nil {
		return nil, err
	}
	return client, nil
}

func newClient(options Options, now clock) (*Client, *Error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewSource(seed()))
	servers := make([]string, len(options.Servers))
	for i, server := range options.Servers {
		if servers[i], err = serverURL(server); err != nil {
			return nil, err
		}
	}
	if options.Order == Shuffled {
		random.Shuffle(len(servers), func(a, b int) { servers[a], servers[b] = servers[b], servers[a] })
	}
	transport, err := options.transport()
	if err != nil {
		return nil, err
	}
	background, cancel := context.WithCancel(context.Background())
	fetcher := &fetcher{
		servers:    servers,
		transport:  transport,
		token:      &token{fixed: strings.TrimSpace(options.Token), file: options.TokenFile, reading: make(chan struct{}, 1)},
		now:        now,
		timeout:    options.Timeout,
		hedgeAfter: options.HedgeAfter,
		choice:     newChoice(len(servers), random),
		store:      options.Store,
	}
	// So that a program that prints its client does not print the token.
	options.Token = ""
	return &Client{
		options: options, fetcher: fetcher, background: background, cancel: cancel,
		namespaces: map[string]*Namespace{}, texts: map[string]*Texts{},
	}, nil
}

// seed returns a random number. Uniqueness does not depend on it.
func seed() int64 {
	var random [8]byte
	if _, err := crand.Read(random[:]); err != nil {
		return time.Now().UnixNano()
	}
	return int64(binary.LittleEndian.Uint64(random[:]))
}

// Namespace returns a handle for the ids of a namespace: plain numbers, of a snowflake layout or a segment. It sends no request.
// An invalid name is the error of each call. The client keeps the handle and its ids until it is closed.
func (c *Client) Namespace(name string) *Namespace {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.namespaces[name]
	if n == nil {
		n = new(Namespace)
		if c.start(&n.source, name, false) {
			c.namespaces[name] = n
		}
	}
	return n
}

// Texts returns a handle for the ids of a namespace with a text form. Otherwise it is like [Client.Namespace].
func (c *Client) Texts(name string) *Texts {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.texts[name]
	if t == nil {
		t = new(Texts)
		if c.start(&t.source, name, true) {
			c.texts[name] = t
		}
	}
	return t
}

// start prepares a source. It returns whether ids can come from it.
func (c *Client) start(s *source, name string, isText bool) bool {
	s.name, s.isText, s.health = name, isText, make([]health, len(c.fetcher.servers))
	s.fetcher, s.background = c.fetcher, c.background
	s.keeps = c.options.Buffer.Max > 0
	s.maxAge = c.options.MaxAge
	if age, ok := c.options.NamespaceMaxAge[name]; ok {
		s.maxAge = age
	}
	limit := int64(maxRequest)
	if isText {
		limit = maxTexts
	}
	s.target = newTarget(*c.options.Buffer, s.maxAge, limit)
	s.buffer.init(c.fetcher.now)
	if !isNamespace(name) {
		s.stopped = invalidNamespace(name)
	} else if c.isClosed {
		s.stopped = closed(name)
	}
	return s.stopped == nil
}

// isNamespace returns whether a namespace can have a name.
func isNamespace(name string) bool {
	for _, r := range name {
		isLetter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !isLetter && !('0' <= r && r <= '9') && !strings.ContainsRune("._-:", r) {
			return false
		}
	}
	return name != "" && len(name) <= 64
}

// Store returns the identity of the store whose ids this client returns: the one that was set, or that the first answer named. It
// is "" before.
func (c *Client) Store() string {
	return c.fetcher.storeID()
}

// Stats returns counts for metrics.
func (c *Client) Stats() Stats {
	stats := Stats{
		Requests: c.fetcher.requests.Load(), Hedged: c.fetcher.hedged.Load(), Failed: c.fetcher.failed.Load(),
	}
	for _, s := range c.sources() {
		stats.Buffered += int(s.buffered())
	}
	return stats
}

// Close drops all ids and closes the connections. Calls that wait and all later calls get an error of the kind [Closed]. It
// returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	c.isClosed = true
	c.mu.Unlock()
	c.cancel()
	for _, s := range c.sources() {
		s.close()
	}
	c.fetcher.transport.CloseIdleConnections()
	return nil
}

func (c *Client) sources() []*source {
	c.mu.Lock()
	defer c.mu.Unlock()
	var sources []*source
	for _, n := range c.namespaces {
		sources = append(sources, &n.source)
	}
	for _, t := range c.texts {
		sources = append(sources, &t.source)
	}
	return sources
}
