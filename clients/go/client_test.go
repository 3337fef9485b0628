package snowmint

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A testServer gives each id once, and each answer when it may.
type testServer struct {
	*httptest.Server
	next atomic.Int64
	// mayAnswer has a value for each answer; nil: at once.
	mayAnswer chan struct{}
	requests  chan string
}

func newTestServer(t *testing.T, mayAnswer chan struct{}) *testServer {
	s := &testServer{mayAnswer: mayAnswer, requests: make(chan string, 10_000)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests <- r.URL.Path
		if s.mayAnswer != nil {
			select {
			case <-s.mayAnswer:
			case <-r.Context().Done():
				return
			}
		}
		var count int64
		fmt.Sscan(r.URL.Query().Get("count"), &count)
		first := s.next.Add(count) - count + 1
		if strings.HasPrefix(r.URL.Path, "/v1/ids/") {
			texts := make([]string, count)
			for i := range texts {
				texts[i] = fmt.Sprintf(`"A-%d"`, first+int64(i))
			}
			fmt.Fprintf(w, `{"ids":[%s]}`, strings.Join(texts, ","))
			return
		}
		fmt.Fprintf(w, `{"ranges":[{"first":"%d","count":%d,"step":"1"}]}`, first, count)
	}))
	t.Cleanup(s.Close)
	return s
}

func open(t *testing.T, o Options) *Client {
	t.Helper()
	if o.HedgeAfter == 0 {
		o.HedgeAfter = Unlimited
	}
	if o.MaxAge == 0 {
		o.MaxAge = Unlimited
	}
	client, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// Goal: goroutines that draw one or several ids at the same time, and give up at any moment, never get an id twice.
func TestConcurrentCallsGetEachIDOnce(t *testing.T) {
	server := newTestServer(t, nil)
	ids := open(t, Options{Servers: []string{server.URL}, Timeout: time.Minute}).Namespace("orders")
	var group sync.WaitGroup
	drawn := make([][]ID, 8)
	for g := range drawn {
		group.Add(1)
		go func(g int) {
			defer group.Done()
			for n := 1; n <= 300; n++ {
				ctx, cancel := context.WithCancel(context.Background())
				if n%7 == 0 {
					go cancel()
				}
				var got []ID
				var err error
				switch (n + g) % 3 {
				case 0:
					got, err = ids.NextN(ctx, n)
				case 1:
					var id ID
					if id, err = ids.Next(ctx); err == nil {
						got = []ID{id}
					}
				default:
					if id, ok, tryErr := ids.TryNext(); ok {
						got, err = []ID{id}, tryErr
					}
				}
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				drawn[g] = append(drawn[g], got...)
				cancel()
			}
		}(g)
	}
	group.Wait()
	seen := map[ID]bool{}
	for _, got := range drawn {
		for _, id := range got {
			if seen[id] || id < 1 || int64(id) > server.next.Load() {
				t.Fatalf("%d came out twice, or no server gave it", id)
			}
			seen[id] = true
		}
	}
	if len(seen) < 10_000 {
		t.Errorf("only %d ids were drawn", len(seen))
	}
}

// Goal: the end of a context ends the wait, the error says so, and the ids go to the next call.
func TestTheEndOfAContextEndsTheWait(t *testing.T) {
	server := newTestServer(t, make(chan struct{}))
	ids := open(t, Options{Servers: []string{server.URL}, Timeout: time.Minute, Buffer: &BufferSize{}}).Namespace("orders")
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan error)
	go func() {
		_, err := ids.NextN(ctx, 2)
		left <- err
	}()
	<-server.requests
	cancel()
	err := <-left
	var e *Error
	if !errors.Is(err, context.Canceled) || !errors.Is(err, Unavailable) || !errors.As(err, &e) || e.Namespace != "orders" {
		t.Errorf("%v", err)
	}
	got := make(chan ID)
	go func() {
		id, err := ids.Next(context.Background())
		if err != nil {
			t.Error(err)
		}
		got <- id
	}()
	// The next call waits before the answer to the first one comes.
	for isWaiting := false; !isWaiting; {
		ids.source.mu.Lock()
		isWaiting = len(ids.source.waiters) == 2
		ids.source.mu.Unlock()
	}
	server.mayAnswer <- struct{}{}
	if id := <-got; id != 1 {
		t.Errorf("%d: expected the ids of the call that left", id)
	}
	if _, err := ids.Next(ctx); !errors.Is(err, context.Canceled) || len(server.requests) != 0 {
		t.Errorf("%v: a call whose context has ended must request nothing", err)
	}
}

// Goal: ids of namespaces with a text form come from their own path, each once.
func TestTexts(t *testing.T) {
	server := newTestServer(t, nil)
	client := open(t, Options{Servers: []string{server.URL}, Buffer: &BufferSize{Min: 4, Max: 4}})
	texts := client.Texts("tickets")
	if text, err := texts.Next(context.Background()); err != nil || text != "A-1" {
		t.Errorf("%q, %v", text, err)
	}
	some, err := texts.NextN(context.Background(), 6)
	if err != nil || strings.Join(some, " ") != "A-2 A-3 A-4 A-5 A-6 A-7" {
		t.Errorf("%q, %v", some, err)
	}
	if got := <-server.requests; got != "/v1/ids/tickets" {
		t.Errorf("%s", got)
	}
	client.Close()
	if _, _, err := texts.TryNext(); !errors.Is(err, Closed) {
		t.Errorf("%v", err)
	}
	if _, err := client.Texts("others").Next(context.Background()); !errors.Is(err, Closed) {
		t.Errorf("%v", err)
	}
}

func TestStatsCountTheIDsInMemory(t *testing.T) {
	client := open(t, Options{Servers: []string{newTestServer(t, nil).URL}})
	for _, name := range []string{"a", "b"} {
		if _, err := client.Namespace(name).Next(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if got := client.Stats(); got != (Stats{Requests: 2, Buffered: 32}) {
		t.Errorf("%+v", got)
	}
}

// Goal: an invalid option is an error that names it, without a token or a password; options that are printed show none either.
func TestOptionsAreChecked(t *testing.T) {
	with := func(change func(o *Options)) Options {
		o := Options{Servers: []string{"http://localhost:1"}}
		change(&o)
		return o
	}
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		options Options
		says    string
	}{
		{Options{}, "name one with Options.Servers"},
		{with(func(o *Options) { o.Servers = []string{"localhost:8080"} }), "expected http"},
		{with(func(o *Options) { o.Servers = []string{"redis://h:1"} }), "expected http"},
		{with(func(o *Options) { o.Servers = []string{"http://"} }), "expected http"},
		{with(func(o *Options) { o.Servers = []string{"http://:1"} }), "expected http"},
		{with(func(o *Options) { o.Servers = []string{""} }), "expected http"},
		{with(func(o *Options) { o.Servers = []string{"http://h:1/?a=b"} }), "expected no query"},
		{with(func(o *Options) { o.Servers = []string{"http://u:hunter2@h:1"} }), "expected no user"},
		{with(func(o *Options) { o.Servers = []string{"http://u:hunter2@h:x"} }), "expected http"},
		{with(func(o *Options) { o.Servers = []string{"http:u:hunter2@h:1"} }), "expected http"},
		{with(func(o *Options) { o.Servers = []string{"http:/u:hunter2@h:1"} }), "expected http"},
		{with(func(o *Options) { o.Servers = []string{"http:///?password=hunter2"} }), "expected http"},
		{with(func(o *Options) { o.Servers = []string{"http://h:1/?password=hunter2"} }), `invalid server "h:1": expected no query`},
		{with(func(o *Options) { o.Servers = []string{"http://h:1/#hunter2"} }), "expected no query"},
		{with(func(o *Options) { o.Servers = []string{"http://h:1/#"} }), "expected no query"},
		{with(func(o *Options) { o.Order = 7 }), "invalid Order 7"},
		{with(func(o *Options) { o.Token = "hunter2 x" }), "expected visible ASCII"},
		{with(func(o *Options) { o.Token, o.TokenFile = "hunter2", "f" }), "not both"},
		{with(func(o *Options) { o.CAFile = "/nowhere.pem" }), "cannot use CAFile: open /nowhere.pem"},
		{with(func(o *Options) { o.CAFile = empty }), "the file has no certificate"},
		{with(func(o *Options) { o.ClientCertificate = KeyPair{empty, empty} }), "cannot use ClientCertificate"},
		{with(func(o *Options) { o.ClientCertificate.KeyFile = empty }), "expected both files"},
		{with(func(o *Options) { o.Store = "prod" }), `invalid Store "prod": expected smst_`},
		{with(func(o *Options) { o.Timeout = time.Hour + 1 }), "expected 1 ms to 1 h"},
		{with(func(o *Options) { o.Timeout = -1 }), "expected 1 ms to 1 h"},
		{with(func(o *Options) { o.HedgeAfter = -1 }), "invalid HedgeAfter"},
		{with(func(o *Options) { o.MaxAge = 1 }), "invalid MaxAge 1ns"},
		{with(func(o *Options) { o.NamespaceMaxAge = map[string]time.Duration{"a": 0} }), `NamespaceMaxAge of "a"`},
		{with(func(o *Options) { o.Buffer = &BufferSize{5, 4} }), "invalid Buffer {Min:5 Max:4}"},
		{with(func(o *Options) { o.Buffer = &BufferSize{0, 1_000_001} }), "invalid Buffer"},
	} {
		_, err := New(c.options)
		if !errors.Is(err, InvalidOption) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v: expected %q", err, c.says)
		}
	}
	if _, err := New(with(func(o *Options) { o.CAFile = "/nowhere.pem" })); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v does not wrap its cause", err)
	}
	secret := with(func(o *Options) { o.Token = "hunter2" })
	if text, err := json.Marshal(map[string]any{"options": secret}); err != nil || strings.Contains(string(text), "hunter2") {
		t.Errorf("%s, %v", text, err)
	}
	client := open(t, secret)
	for _, printed := range []any{secret, &secret, client, client.Namespace("a")} {
		if text := fmt.Sprintf("%v %+v %#v %s", printed, printed, printed, printed); strings.Contains(text, "hunter2") {
			t.Error(text)
		}
	}
	for _, server := range []string{"http://localhost:8080", "https://[::1]:8080/", "http://10.0.0.1/base//"} {
		if got, err := serverURL(server); err != nil || got != strings.TrimRight(server, "/") {
			t.Errorf("%s: %q, %v", server, got, err)
		}
	}
}

// Goal: a program may change its options after New: the client has checked and kept a copy.
func TestOptionsAreCopied(t *testing.T) {
	options := Options{
		Servers: []string{"http://localhost:1"}, NamespaceMaxAge: map[string]time.Duration{"a": time.Minute}, Buffer: &BufferSize{5, 6},
	}
	client := open(t, options)
	options.Servers[0], options.NamespaceMaxAge["a"], options.Buffer.Max = "", -1, -1
	s := &client.Namespace("a").source
	if s.maxAge != time.Minute || s.target.max != 6 || client.fetcher.servers[0] != "http://localhost:1" {
		t.Errorf("%v, %+v, %v", s.maxAge, s.target, client.fetcher.servers)
	}
}

// Goal: calls that give up while no server answers leave nothing behind.
func TestCallsThatLeftAreForgotten(t *testing.T) {
	server := newTestServer(t, make(chan struct{}))
	ids := open(t, Options{Servers: []string{server.URL}, Timeout: time.Minute}).Namespace("a")
	for n := 0; n < 500; n++ {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Microsecond)
		if _, err := ids.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		cancel()
	}
	ids.source.mu.Lock()
	defer ids.source.mu.Unlock()
	if got := len(ids.source.waiters); got > 100 {
		t.Errorf("%d calls are waiting", got)
	}
}

// Goal: after DiscardBuffered nothing is requested, not even again after an error, until the next call.
func TestDiscardEndsTheRequest(t *testing.T) {
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) < 1_000_000 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, `{"ranges":[{"first":"7","count":%s,"step":"1"}]}`, r.URL.Query().Get("count"))
	}))
	defer server.Close()
	ids := open(t, Options{Servers: []string{server.URL}, Timeout: time.Minute}).Namespace("a")
	if _, ok, err := ids.TryNext(); ok || err != nil {
		t.Fatal(ok, err)
	}
	for requests.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	ids.DiscardBuffered()
	// The request that is on its way may still arrive.
	time.Sleep(100 * time.Millisecond)
	before := requests.Load()
	time.Sleep(500 * time.Millisecond)
	if got := requests.Swap(1_000_000) - before; got != 0 {
		t.Errorf("%d requests after DiscardBuffered", got)
	}
	if id, err := ids.Next(context.Background()); id != 7 || err != nil {
		t.Errorf("%d, %v", id, err)
	}
}

// Goal: if every server asks for a later retry, calls that have less time fail, and calls that came later wait.
func TestLaterCallsWaitForRetryAfter(t *testing.T) {
	s := &open(t, Options{Servers: []string{"http://localhost:1"}}).Namespace("a").source
	s.isFilling, s.abandon = true, func() {}
	for _, left := range []time.Duration{5 * time.Second, time.Minute} {
		s.waiters = append(s.waiters, &waiter{missing: 1, deadline: time.Now().Add(left), answer: make(chan waited, 1)})
	}
	first, second := s.waiters[0], s.waiters[1]
	why := &failure{kind: Unavailable, after: 30 * time.Second, hasAfter: true}
	if !s.settle(1, 0, fetched{}, postponed, why) || len(s.waiters) != 1 || s.waiters[0] != second {
		t.Errorf("%+v", s.waiters)
	}
	if got := <-first.answer; got.err == nil || got.err.RetryAfter != 30*time.Second {
		t.Errorf("%+v", got)
	}
}

// Goal: a token file of any size is an error, and not read to its end.
func TestATokenFileWithoutEnd(t *testing.T) {
	if _, err := os.Stat("/dev/zero"); err != nil {
		t.Skip(err)
	}
	client := open(t, Options{Servers: []string{"http://localhost:1"}, TokenFile: "/dev/zero", Timeout: time.Second})
	if _, err := client.Namespace("a").Next(context.Background()); !errors.Is(err, Unauthorized) {
		t.Error(err)
	}
}

// Goal: a server's text shows neither the token that it repeats, nor signs that control a terminal.
func TestTextOfServers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"detail":"no %s\u001b[31m\u202ered %s"}`, r.Header.Get("Authorization"), strings.Repeat("x", 5000))
	}))
	defer server.Close()
	client := open(t, Options{Servers: []string{server.URL}, Token: " sm_hunter2\n"})
	_, err := client.Namespace("a").Next(context.Background())
	text := fmt.Sprint(err)
	if !errors.Is(err, Forbidden) || strings.Contains(text, "hunter2") || !strings.Contains(text, `no Bearer (token)\u{1b}[31m\u{202e}red xx`) ||
		len(text) > 4500 {
		t.Errorf("%s", text)
	}
}

func TestRetryAfter(t *testing.T) {
	const noon = "Sun, 06 Nov 1994 12:00:00 GMT"
	for _, c := range []struct {
		retryAfter, date string
		want             time.Duration
		ok               bool
	}{
		{"30", "", 30 * time.Second, true},
		{" 0 ", "", 0, true},
		{"61", "", time.Minute, true},
		{"18446744073709551615", "", time.Minute, true},
		{"99999999999999999999", "", time.Minute, true},
		{"", "", 0, false},
		{"soon", "", 0, false},
		{"-3", "", 0, false},
		{"Sun, 06 Nov 1994 12:00:40 GMT", noon, 40 * time.Second, true},
		{"Sun, 06 Nov 1994 11:00:00 GMT", noon, 0, true},
		{"Mon, 01 Jan 2300 00:00:00 GMT", noon, time.Minute, true},
		// Without a date in the answer, it counts from now.
		{noon, "", 0, true},
	} {
		header := http.Header{"Retry-After": {c.retryAfter}, "Date": {c.date}}
		if got, ok := retryAfter(header); got != c.want || ok != c.ok {
			t.Errorf("%+v: %v, %v", c, got, ok)
		}
	}
}

// Goal: the client sends its certificate to a server that requires one. A server that does not trust it, or gets none, is an
// error of the kind InvalidCertificate, over each version of TLS.
func TestClientCertificates(t *testing.T) {
	folder := t.TempDir()
	certificate, files := newCertificate(t, folder)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, isTrusted := range []bool{true, false} {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, `{"ranges":[{"first":"7","count":1,"step":"1"}]}`)
			}))
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.TLS = &tls.Config{
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool(), MinVersion: version, MaxVersion: version,
			}
			if isTrusted {
				server.TLS.ClientCAs.AddCert(certificate)
			}
			server.StartTLS()
			authority := filepath.Join(folder, "server.pem")
			write(t, authority, "CERTIFICATE", server.Certificate().Raw)
			for _, pair := range []KeyPair{files, {}} {
				// TLS 1.2 has no alert for a missing certificate.
				if pair != files && version == tls.VersionTLS12 {
					continue
				}
				client := open(t, Options{
					Servers: []string{server.URL}, CAFile: authority, ClientCertificate: pair, Buffer: &BufferSize{}, Timeout: time.Minute,
				})
				id, err := client.Namespace("a").Next(context.Background())
				if isTrusted && pair == files {
					if err != nil || id != 7 {
						t.Errorf("%v, %v", id, err)
					}
				} else if !errors.Is(err, InvalidCertificate) {
					t.Errorf("TLS %x, trusted %v, %v: %v", version, isTrusted, pair, err)
				}
				client.Close()
			}
			server.Close()
		}
	}
}

func newCertificate(t *testing.T, folder string) (*x509.Certificate, KeyPair) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	files := KeyPair{filepath.Join(folder, "client.pem"), filepath.Join(folder, "client.key")}
	write(t, files.CertFile, "CERTIFICATE", raw)
	write(t, files.KeyFile, "EC PRIVATE KEY", secret)
	return certificate, files
}

func write(t *testing.T, path, kind string, content []byte) {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
		t.Fatal(err)
	}
}
