package snowmint

import (
	"encoding/json"
	"math/big"
	"reflect"
	"strings"
	"testing"
)

func TestReadRanges(t *testing.T) {
	for _, c := range []struct {
		body  string
		count int64
		want  []span
	}{
		{`{"ranges":[{"first":"9007199254740993","count":3,"step":"1"},{"first":"9223372036854775807","count":1,"step":"18446744073709551615"}]}`, 4,
			[]span{{first: 9007199254740993, count: 3, step: 1}, {first: 1<<63 - 1, count: 1}}},
		{` { "until" : [7, {"ranges": "}\"]"}] , "ranges" : [ { "count" : 2 , "x":"\\", "step":"4", "first":"0" } ] } `, 2,
			[]span{{first: 0, count: 2, step: 4}}},
		{`{"ranges":[{"first":"5","count":1,"step":"0"}]}`, 1, []span{{first: 5, count: 1}}},
		{`{"ranges":[{"first":"5","count":1,"step":"1"}]}`, 2, nil},
		{`{"ranges":[{"first":"5","count":2,"step":"1"}]}`, 1, nil},
		{`{"ranges":[{"first":"5","count":16777217,"step":"1"}]}`, 16777217, nil},
		{`{"ranges":[{"first":"9223372036854775806","count":3,"step":"1"}]}`, 3, nil},
		{`{"ranges":[{"first":"9223372036854775808","count":1,"step":"1"}]}`, 1, nil},
		{`{"ranges":[{"first":"1","count":3,"step":"9223372036854775807"}]}`, 3, nil},
		{`{"ranges":[{"first":"5","count":2,"step":"0"}]}`, 2, nil},
		{`{"ranges":[{"first":"5","count":2,"step":"-1"}]}`, 2, nil},
		{`{"ranges":[{"first":"5","count":1e0,"step":"1"}]}`, 1, nil},
		{`{"ranges":[{"first":"\u0035","count":1,"step":"1"}]}`, 1, nil},
		// encoding/json alone would accept these.
		{`{"RANGES":[{"first":"5","count":1,"step":"1"}]}`, 1, nil},
		{`{"ranges":[{"first":"5","count":1,"step":"1"}],"ranges":[{"first":"6","count":1,"step":"1"}]}`, 1, nil},
		{`{"ranges":[{"first":"5","first":"6","count":1,"step":"1"}]}`, 1, nil},
		{"{\"x\":\"\xff\",\"ranges\":[{\"first\":\"5\",\"count\":1,\"step\":\"1\"}]}", 1, nil},
		{`{"ranges":[5]}`, 1, nil},
		{`{"ranges":[]}`, 0, nil},
		{`{"ranges":null}`, 0, nil},
		{`[]`, 0, nil},
		{`5`, 0, nil},
		{``, 0, nil},
	} {
		got, err := readRanges([]byte(c.body), c.count)
		if !reflect.DeepEqual(got, c.want) || c.want == nil && c.count > 0 && err == nil {
			t.Errorf("%s: %+v, %v", c.body, got, err)
		}
	}
}

func TestReadTexts(t *testing.T) {
	got, err := readTexts([]byte(`{"ids":["A-1","\u00c4-2"]}`), 2)
	if want := []span{{count: 2, texts: []string{"A-1", "Ä-2"}}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, body := range []string{
		`{"ids":["A"]}`, `{"ids":["A","B","C"]}`, `{"ids":["A",""]}`, `{"ids":["A","\u0041"]}`, `{"ids":["A",5]}`, `{"ids":["A",null]}`, `{"ids":null}`, `{}`, ``,
		// encoding/json alone would accept these, make one text of two, or mix two lists.
		"{\"ids\":[\"A\xfe\",\"A\xff\"]}", `{"ids":["A\ud800","A\udbff"]}`, `{"IDS":["A","B"]}`, `{"ids":["A","B"],"ids":[null,"C"]}`,
	} {
		if got, err := readTexts([]byte(body), 2); err == nil {
			t.Errorf("%s: %+v", body, got)
		}
	}
}

// FuzzReadRanges compares each accepted answer with what encoding/json reads, by arithmetic without overflow.
func FuzzReadRanges(f *testing.F) {
	f.Add([]byte(`{"ranges":[{"first":"5","count":3,"step":"1"}]}`), int64(3))
	f.Add([]byte(`{"x":{"ranges":[]},"ranges":[{"count":1,"step":"0","first":"7"},{"first":"9","count":2,"step":"4"}]}`), int64(3))
	f.Add([]byte(`{"ranges":[{"first":"9223372036854775806","count":2,"step":"1"}],"y":"\"]}"}`), int64(2))
	f.Add([]byte(`{"ranges":[{"first":"1","count":3,"step":"9223372036854775807"}]}`), int64(3))
	f.Add([]byte("{\"ranges\" :\t[ ] , \"z\": -1.5e3}"), int64(0))
	most := new(big.Int).SetUint64(maxID)
	f.Fuzz(func(t *testing.T, body []byte, count int64) {
		spans, err := readRanges(body, count)
		if err != nil {
			return
		}
		var sum int64
		for _, s := range spans {
			sum += s.count
			last := new(big.Int).Mul(big.NewInt(s.step), big.NewInt(s.count-1))
			last.Add(last, big.NewInt(s.first))
			if s.first < 0 || s.count < 1 || s.count > 1 && s.step < 1 || last.Cmp(most) > 0 {
				t.Fatalf("accepted %+v", s)
			}
		}
		if sum != count {
			t.Fatalf("accepted %d ids instead of %d", sum, count)
		}
		if hasOtherCase(body) {
			return
		}
		var answer struct {
			Ranges []struct {
				First, Step string
				Count       int64
			}
		}
		if err := json.Unmarshal(body, &answer); err != nil || len(answer.Ranges) != len(spans) {
			t.Fatalf("accepted %q as %+v, encoding/json: %+v, %v", body, spans, answer, err)
		}
		for i, s := range spans {
			first := strings.TrimLeft(answer.Ranges[i].First, "0")
			if answer.Ranges[i].Count != s.count || first != strings.TrimLeft(ID(s.first).String(), "0") {
				t.Fatalf("%+v: encoding/json reads %+v", s, answer.Ranges[i])
			}
		}
	})
}

// hasOtherCase returns whether encoding/json may take another member for one of ours: it ignores case, reads escapes, and takes
// signs such as ſ for letters.
func hasOtherCase(body []byte) bool {
	for _, r := range string(body) {
		if r > 127 || r == '\\' || r >= 'A' && r <= 'Z' {
			return true
		}
	}
	return false
}
