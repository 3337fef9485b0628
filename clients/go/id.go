package snowmint

import (
	"fmt"
	"strconv"
)

// ID is a unique id, from 0 to 2^63 - 1.
//
// Its JSON is a string, because a number in JavaScript is exact only up to 2^53. It reads a string or a number. In SQL it is a
// BIGINT: [database/sql] writes and scans it as an int64, without further methods.
type ID int64

// String returns the digits of the id.
func (id ID) String() string {
	return strconv.FormatInt(int64(id), 10)
}

// MarshalText returns the digits of the id. JSON uses it too, so that the id becomes a string, or the key of an object.
func (id ID) MarshalText() ([]byte, error) {
	return strconv.AppendInt(make([]byte, 0, 20), int64(id), 10), nil
}

// UnmarshalText reads the digits of an id.
func (id *ID) UnmarshalText(text []byte) error {
	number, ok := number(text)
	if !ok || number > maxID {
		return fmt.Errorf("snowmint: invalid id %q: expected digits, from 0 to 2^63 - 1", shown(string(text), longestName))
	}
	*id = ID(number)
	return nil
}

// UnmarshalJSON reads an id from a string or a number. As in all of [encoding/json], null changes nothing.
func (id *ID) UnmarshalJSON(value []byte) error {
	if string(value) == "null" {
		return nil
	}
	if last := len(value) - 1; last > 0 && value[0] == '"' && value[last] == '"' {
		value = value[1:last]
	}
	return id.UnmarshalText(value)
}
