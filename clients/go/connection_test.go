package snowmint

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A rawServer answers each request with bytes. It counts the connections that are open.
type rawServer struct {
	url  string
	open atomic.Int64
}

// newRawServer starts a server that writes the texts of an answer one after the other. It closes a connection only when the client
// does.
func newRawServer(t *testing.T, answer func(path string, request int64) []string) *rawServer {
	return newRawServerOver(t, nil, answer)
}

// newRawServerOver starts a server over TLS, if the configuration is not nil.
func newRawServerOver(t *testing.T, config *tls.Config, answer func(path string, request int64) []string) *rawServer {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	server := &rawServer{url: "http://" + listener.Addr().String()}
	if config != nil {
		listener = tls.NewListener(listener, config)
		server.url = "https://" + listener.Addr().String()
	}
	var requests atomic.Int64
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			server.open.Add(1)
			go func() {
				defer server.open.Add(-1)
				defer connection.Close()
				reader := bufio.NewReader(connection)
				for {
					request, err := http.ReadRequest(reader)
					if err != nil {
						io.Copy(io.Discard, reader)
						return
					}
					for _, text := range answer(request.URL.Path, requests.Add(1)) {
						io.WriteString(connection, text)
					}
				}
			}()
		}
	}()
	return server
}

func rawAnswer(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// expectOpen waits until as many connections are open.
func (s *rawServer) expectOpen(t *testing.T, want int64) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); s.open.Load() != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are open: expected %d", s.open.Load(), want)
		}
	}
}

// Goal: if a server or a proxy sends an answer twice, its ids come out once. The second copy would be the answer to the next
// request on the connection.
func TestAnAnswerThatIsSentTwiceIsUsedOnce(t *testing.T) {
	secure := httptest.NewTLSServer(nil)
	defer secure.Close()
	authority := filepath.Join(t.TempDir(), "server.pem")
	write(t, authority, "CERTIFICATE", secure.Certificate().Raw)
	for _, config := range []*tls.Config{nil, {Certificates: secure.TLS.Certificates}} {
		server := newRawServerOver(t, config, func(_ string, request int64) []string {
			answer := rawAnswer(fmt.Sprintf(`{"ranges":[{"first":"%d","count":1,"step":"1"}]}`, request))
			return []string{answer, answer}
		})
		ids := open(t, Options{
			Servers: []string{server.url}, CAFile: authority, Timeout: time.Minute, Buffer: &BufferSize{},
		}).Namespace("a")
		seen := map[ID]bool{}
		for n := 0; n < 100; n++ {
			id, err := ids.Next(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if seen[id] {
				t.Fatalf("%d came out twice", id)
			}
			seen[id] = true
		}
	}
}

// Goal: if an error is sent twice, the answers that follow do not shift to the next request, which may be of another namespace.
func TestAnErrorThatIsSentTwiceShiftsNoAnswer(t *testing.T) {
	const body = `{"type":"urn:snowmint:busy"}`
	refusal := strings.Replace(rawAnswer(body), "200 OK", "503 Service Unavailable", 1)
	server := newRawServer(t, func(path string, request int64) []string {
		if request%3 == 1 {
			return []string{refusal, refusal}
		}
		if path == "/v1/ranges/b" {
			request += 1_000_000
		}
		return []string{rawAnswer(fmt.Sprintf(`{"ranges":[{"first":"%d","count":2,"step":"1"}]}`, 2*request))}
	})
	client := open(t, Options{Servers: []string{server.url}, Timeout: time.Minute})
	for n := 0; n < 1000; n++ {
		for _, name := range []string{"a", "b"} {
			got, out, _ := client.fetcher.fetch(context.Background(), &client.Namespace(name).source.namespaceState, 2)
			if out == filled && got.spans[0].first > 1_000_000 != (name == "b") {
				t.Fatalf("%d is no id of namespace %s", got.spans[0].first, name)
			}
		}
	}
}

// Goal: a server that accepts connections and is silent keeps none of them: not before TLS, and not after a change of protocols.
func TestSilentServersKeepNoConnections(t *testing.T) {
	const switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	server := newRawServer(t, func(string, int64) []string { return []string{switched} })
	for _, c := range []struct {
		url  string
		kind Kind
	}{
		{server.url, Rejected},
		{strings.Replace(server.url, "http:", "https:", 1), Unavailable},
	} {
		ids := open(t, Options{Servers: []string{c.url}, Timeout: 100 * time.Millisecond}).Namespace("a")
		if _, err := ids.Next(context.Background()); !errors.Is(err, c.kind) {
			t.Errorf("%s: %v", c.url, err)
		}
		server.expectOpen(t, 0)
	}
}

// Goal: an error shows neither the token that an answer repeats, nor signs that control a terminal, wherever the answer has them.
func TestErrorsOfBrokenAnswersHideTheToken(t *testing.T) {
	const valid = `{"ranges":[{"first":"1","count":1,"step":"1"}]}`
	for _, answer := range []string{
		"HTTP/1.1 hunter2 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nhunter2 \x1b[31m\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: hunter2\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhunter2\r\n",
		rawAnswer(`{"ranges":["hunter2"]}`),
		rawAnswer(`{"ranges":["` + strings.Repeat("x", 195) + `hunter2"]}`),
		strings.Replace(rawAnswer(valid), "\r\n", "\r\nSnowmint-Store: hunter2\r\n", 1),
		strings.Replace(rawAnswer(`{"detail":"hunter2"}`), "200", "403", 1),
	} {
		answer := answer
		server := newRawServer(t, func(string, int64) []string { return []string{answer} })
		client := open(t, Options{
			Servers: []string{server.url}, Token: "hunter2", Timeout: 50 * time.Millisecond, Buffer: &BufferSize{},
			Store: "smst_" + strings.Repeat("0", 26),
		})
		_, err := client.Namespace("a").Next(context.Background())
		if text := fmt.Sprint(err); err == nil || strings.Contains(text, "hunt") || strings.Contains(text, "\x1b") {
			t.Errorf("%q: %q", answer, text)
		}
	}
}
