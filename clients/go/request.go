package snowmint

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Limits in bytes: an answer without its ids, one id, an error, a token file. All are more than a server sends or reads.
const (
	longestFrame = 1024
	longestID    = 128
	longestError = 16 * 1024
	// longestTokenFile is more than a header may have.
	longestTokenFile = 64 * 1024
)

// longestRetryAfter is the longest Retry-After that is honoured.
const longestRetryAfter = time.Minute

// userAgent is the User-Agent of each request.
const userAgent = "snowmint-go/" + Version

// A token authorizes a client. Without a file it is fixed.
type token struct {
	fixed, file string
	// reading is held during a read of the file: if the file system hangs, one goroutine waits for it, not one for each request.
	reading chan struct{}
}

// isToken returns whether a header can contain a token.
func isToken(text string) bool {
	for _, r := range text {
		if r <= ' ' || r > '~' {
			return false
		}
	}
	return text != ""
}

// read returns the token; "" if there is none.
func (t *token) read(ctx context.Context) (string, error) {
	if t.file == "" {
		return t.fixed, nil
	}
	select {
	case t.reading <- struct{}{}:
	case <-ctx.Done():
		return "", fmt.Errorf("token file %s: not read in time", t.file)
	}
	type result struct {
		text []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		text, err := readFile(t.file, longestTokenFile)
		<-t.reading
		read <- result{text, err}
	}()
	select {
	case <-ctx.Done():
		return "", fmt.Errorf("token file %s: not read in time", t.file)
	case r := <-read:
		text := strings.TrimSpace(string(r.text))
		if r.err != nil {
			return "", fmt.Errorf("token file: %w", r.err)
		}
		if !isToken(text) {
			return "", fmt.Errorf("token file %s: expected one token of visible ASCII characters", t.file)
		}
		return text, nil
	}
}

// readFile reads a file of a limited size.
func readFile(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s: more than %d bytes", path, most)
	}
	return text, err
}

// hidden returns a text of a server as an error may show it: without the token.
func hidden(text, token string, most int) string {
	if token != "" {
		text = strings.ReplaceAll(text, token, "(token)")
	}
	return shown(text, most)
}

var (
	process = randomText()
	sent    atomic.Uint64
)

// randomText returns 64 random bits as text.
func randomText() string {
	var random [8]byte
	// It does not fail on the systems that Go supports.
	_, _ = rand.Read(random[:])
	return hex.EncodeToString(random[:])
}

// newRequestID returns a text that no other request has, of this process or another one: a proxy that sends an answer twice would
// otherwise answer the next request with it.
func newRequestID() string {
	return process + "-" + strconv.FormatUint(sent.Add(1), 10)
}

// request sends one request to one server, and checks its answer. The server may take up to wait to make the ids. store is the
// identity of the store behind the ids; "" if the server did not name it.
func (f *fetcher) request(
	ctx context.Context, server, token string, ns *namespaceState, count int64, wait time.Duration,
) (ids []span, store string, failed *failure) {
	var used *connection
	ctx = traced(ctx, &used)
	defer func() {
		// After an error that is sent twice, each later answer would go to the next request.
		if failed != nil && used != nil {
			used.Close()
		}
	}()
	address := fmt.Sprintf("%s/v1/%s/%s?count=%d&wait=%.3f", server, ns.path(), ns.name, count, wait.Seconds())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, nil)
	if err != nil {
		return nil, "", &failure{server: server, kind: Rejected, detail: inner(err).Error(), retry: never}
	}
	id := newRequestID()
	request.Header.Set("User-Agent", userAgent)
	request.Header.Set("Snowmint-Request", id)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	// Unlike http.Client, the transport follows no redirect. It sends a request again only if it has written nothing of it: a
	// POST without an Idempotency-Key is not repeated otherwise.
	response, err := f.transport.RoundTrip(request)
	if err != nil {
		return nil, "", unsent(server, err, token)
	}
	defer response.Body.Close()
	if answered := response.Header.Get("Snowmint-Request"); answered != "" && answered != id {
		return nil, "", unavailable(server, "invalid answer: it belongs to another request")
	}
	if response.StatusCode != http.StatusOK {
		return nil, "", refusal(server, response, token)
	}
	limit := count*longestID + longestFrame
	body, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	if err != nil {
		return nil, "", unavailable(server, "broken answer: "+hidden(inner(err).Error(), token, longestMessage))
	}
	if int64(len(body)) > limit {
		return nil, "", unavailable(server, fmt.Sprintf("invalid answer: more than %d bytes", limit))
	}
	if used != nil && used.isRepeated(body) {
		return nil, "", unavailable(server, "invalid answer: it is equal to the one before on the connection")
	}
	read := readRanges
	if ns.isText {
		read = readTexts
	}
	if ids, err = read(body, count); err != nil {
		return nil, "", unavailable(server, "invalid answer: "+err.Error())
	}
	return ids, response.Header.Get("Snowmint-Store"), nil
}

func unavailable(server, detail string) *failure {
	return &failure{server: server, kind: Unavailable, detail: detail, retry: elsewhere}
}

// unsent returns the failure of a connection or request.
func unsent(server string, err error, token string) *failure {
	err = inner(err)
	detail := hidden(err.Error(), token, longestMessage)
	if isAboutCertificates(err) {
		return &failure{server: server, kind: InvalidCertificate, detail: detail, retry: afterRepair}
	}
	return unavailable(server, detail)
}

// inner returns an error without the method and URL that net/http and net/url put around it.
func inner(err error) error {
	var around *url.Error
	if errors.As(err, &around) {
		return around.Err
	}
	return err
}

// certificateAlerts are the TLS alerts of a server that does not trust the client's certificate. crypto/tls exports their type
// only since Go 1.21.
var certificateAlerts = [...]string{
	"tls: bad certificate",
	"tls: unsupported certificate",
	"tls: revoked certificate",
	"tls: expired certificate",
	"tls: unknown certificate",
	"tls: unknown certificate authority",
	"tls: access denied",
	"tls: certificate required",
}

// isAboutCertificates returns whether a connection failed because one side does not trust the other's certificate.
func isAboutCertificates(err error) bool {
	var (
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		extension x509.UnhandledCriticalExtension
		weak      x509.InsecureAlgorithmError
		host      x509.HostnameError
		roots     x509.SystemRootsError
		alert     *net.OpError
	)
	if errors.As(err, &authority) || errors.As(err, &invalid) || errors.As(err, &extension) || errors.As(err, &weak) ||
		errors.As(err, &host) || errors.As(err, &roots) {
		return true
	}
	if errors.As(err, &alert) && alert.Op == "remote error" {
		for _, text := range certificateAlerts {
			if alert.Err.Error() == text {
				return true
			}
		}
	}
	return false
}

// refusal reads why a server returned no ids.
func refusal(server string, response *http.Response, token string) *failure {
	var problem struct{ Type, Detail string }
	var body []byte
	var err error
	// After a change of protocols the body would be the connection, whose reads the end of the request does not end.
	if response.StatusCode != http.StatusSwitchingProtocols {
		body, err = io.ReadAll(io.LimitReader(response.Body, longestError+1))
	}
	if err != nil || len(body) > longestError || json.Unmarshal(body, &problem) != nil {
		// Without a readable body, the status alone is the error.
		problem.Type, problem.Detail = "", ""
	}
	status := response.StatusCode
	name := ""
	if strings.HasPrefix(problem.Type, "urn:snowmint:") {
		name = strings.TrimPrefix(problem.Type, "urn:snowmint:")
	}
	text := hidden(problem.Detail, token, longestMessage)
	if text == "" {
		text = http.StatusText(status)
	}
	f := &failure{server: server, status: status, detail: strings.TrimSpace(fmt.Sprintf("status %d: %s", status, text))}
	f.kind, f.retry, f.scope = meaning(status, name)
	if f.retry == elsewhere {
		f.after, f.hasAfter = retryAfter(response.Header)
	}
	return f
}

// meaning returns what an error answer means. name is the last part of Snowmint's problem type; "" without one.
func meaning(status int, name string) (Kind, retry, scope) {
	of := ofServer
	// An unknown problem of a later server counts for the namespace: if it concerns the server, each namespace finds out with its
	// own request. The opposite mistake would stop namespaces that work.
	if status >= 500 && name != "" && name != "too-many-clients" {
		of = ofNamespace
	}
	switch name {
	case "busy":
		return Unavailable, fewer, of
	case "layout-ended", "numbers-ended", "too-many-namespaces", "cross-site":
		return Rejected, never, of
	}
	switch {
	case status == 400 && name == "bad-count":
		// The count exceeds the token's quota.
		return Rejected, fewer, of
	case status == 401:
		return Unauthorized, never, of
	case status == 403:
		return Forbidden, never, of
	case status == 404 && name == "unknown-namespace":
		return UnknownNamespace, never, of
	case status == 429:
		return OverQuota, elsewhere, of
	case status == 408 || status >= 500 && status <= 599:
		return Unavailable, elsewhere, of
	default:
		return Rejected, never, of
	}
}

// retryAfter returns the server's Retry-After: a number of seconds, or a date, which proxies send. A date counts from the Date of
// the answer, so the clocks need not agree.
func retryAfter(header http.Header) (time.Duration, bool) {
	text := strings.TrimSpace(header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		if seconds > uint64(longestRetryAfter/time.Second) {
			return longestRetryAfter, true
		}
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	now, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	after := at.Sub(now)
	if after < 0 {
		after = 0
	}
	if after > longestRetryAfter {
		after = longestRetryAfter
	}
	return after, true
}
