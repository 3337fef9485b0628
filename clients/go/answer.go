package snowmint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// longestRange is the maximum number of ids in a range.
const longestRange = 1 << 24

// readRanges reads an answer that must have exactly count ids. One invalid range makes all of it invalid.
func readRanges(body []byte, count int64) ([]span, error) {
	list, err := listOf(body, "ranges")
	if err != nil {
		return nil, err
	}
	var spans []span
	var sum int64
	for !list.leave(']') {
		s, ok := readRange(list.value())
		if !ok {
			return nil, fmt.Errorf("range %d: expected ids from 0 to 2^63 - 1", len(spans)+1)
		}
		spans = append(spans, s)
		if sum += s.count; sum > count {
			break
		}
	}
	if sum != count {
		return nil, fmt.Errorf("%d ids or more: expected %d", sum, count)
	}
	return spans, nil
}

// readRange reads {"first":"5","count":3,"step":"1"}.
func readRange(text []byte) (span, bool) {
	values, err := members(text, "first", "count", "step")
	if err != nil {
		return span{}, false
	}
	first, ok1 := number(unquoted(values[0]))
	count, ok2 := number(values[1])
	step, ok3 := number(unquoted(values[2]))
	if !ok1 || !ok2 || !ok3 || first > maxID || count < 1 || count > longestRange {
		return span{}, false
	}
	if count == 1 {
		return span{first: int64(first), count: 1}, true
	}
	if step < 1 || step > (maxID-first)/(count-1) {
		return span{}, false
	}
	return span{first: int64(first), step: int64(step), count: int64(count)}, true
}

// readTexts reads {"ids":["A-7","A-8"]}, which must have exactly count texts.
func readTexts(body []byte, count int64) ([]span, error) {
	list, err := listOf(body, "ids")
	if err != nil {
		return nil, err
	}
	var ids []string
	seen := make(map[string]struct{}, count)
	for !list.leave(']') && int64(len(ids)) <= count {
		var id string
		// encoding/json makes U+FFFD of an escape that is no character. Two ids could become one.
		if json.Unmarshal(list.value(), &id) != nil || id == "" || strings.ContainsRune(id, utf8.RuneError) {
			return nil, fmt.Errorf("id %d: expected a text", len(ids)+1)
		}
		if _, is := seen[id]; is {
			return nil, fmt.Errorf("id %d comes twice", len(ids)+1)
		}
		seen[id] = struct{}{}
		ids = append(ids, id)
	}
	if int64(len(ids)) != count {
		return nil, fmt.Errorf("%d ids or more: expected %d", len(ids), count)
	}
	return []span{{count: count, texts: ids}}, nil
}

// listOf returns the list that a member of an answer is.
func listOf(body []byte, name string) (scanner, error) {
	if !json.Valid(body) || !utf8.Valid(body) {
		return scanner{}, errors.New("no JSON")
	}
	values, err := members(body, name)
	if err != nil {
		return scanner{}, err
	}
	list := scanner{rest: values[0]}
	if !list.enter('[') {
		return scanner{}, fmt.Errorf("`%s` is no list", name)
	}
	return list, nil
}

// number reads ASCII digits without a sign.
func number(text []byte) (uint64, bool) {
	for _, digit := range text {
		if digit < '0' || digit > '9' {
			return 0, false
		}
	}
	number, err := strconv.ParseUint(string(text), 10, 64)
	return number, err == nil
}

// unquoted returns what is between the quotes of a JSON string; nil if it is none. Escapes stay, and are no digits.
func unquoted(text []byte) []byte {
	if len(text) < 2 || text[0] != '"' {
		return nil
	}
	return text[1 : len(text)-1]
}

// members returns the values of an object's members, each of which must be there once. encoding/json would match names in any
// case, and merge the values of a member that comes twice.
func members(object []byte, names ...string) ([][]byte, error) {
	values := make([][]byte, len(names))
	s := scanner{rest: object}
	if !s.enter('{') {
		return nil, errors.New("no JSON object")
	}
	for !s.leave('}') {
		name := unquoted(s.value())
		s.enter(':')
		value := s.value()
		for i := range names {
			if string(name) == names[i] {
				if values[i] != nil {
					return nil, fmt.Errorf("`%s` comes twice", names[i])
				}
				values[i] = value
			}
		}
	}
	for i := range names {
		if values[i] == nil {
			return nil, fmt.Errorf("no `%s`", names[i])
		}
	}
	return values, nil
}

// A scanner splits JSON that was found valid.
type scanner struct{ rest []byte }

// enter skips a sign and the space before it. It returns whether the sign was there.
func (s *scanner) enter(sign byte) bool {
	s.rest = bytes.TrimLeft(s.rest, " \t\r\n")
	if len(s.rest) == 0 || s.rest[0] != sign {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// leave skips the comma before the next item, or the sign at the end. It returns whether this was the end.
func (s *scanner) leave(sign byte) bool {
	if s.enter(sign) {
		return true
	}
	s.enter(',')
	return len(s.rest) == 0
}

// value skips a value, and returns it.
func (s *scanner) value() []byte {
	s.rest = bytes.TrimLeft(s.rest, " \t\r\n")
	depth, isText := 0, false
	for i := 0; i < len(s.rest); i++ {
		sign := s.rest[i]
		switch {
		case isText && sign == '\\':
			i++
		case sign == '"':
			isText = !isText
			if !isText && depth == 0 {
				return s.cut(i + 1)
			}
		case isText:
		case sign == '{' || sign == '[':
			depth++
		case (sign == '}' || sign == ']') && depth > 0:
			depth--
			if depth == 0 {
				return s.cut(i + 1)
			}
		case depth == 0 && strings.IndexByte(",:}] \t\r\n", sign) >= 0:
			return s.cut(i)
		}
	}
	return s.cut(len(s.rest))
}

func (s *scanner) cut(end int) []byte {
	value := s.rest[:end:end]
	s.rest = s.rest[end:]
	return value
}
