package snowmint

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"io"
	"reflect"
	"testing"
)

// Goal: the JSON of an id is a string, so that no program rounds it, and both forms are read.
func TestJSONOfIDs(t *testing.T) {
	type order struct {
		ID    ID
		Next  *ID        `json:",omitempty"`
		Lines map[ID]int `json:",omitempty"`
	}
	next := ID(1<<63 - 1)
	whole := order{9007199254740993, &next, map[ID]int{7: 1}}
	const text = `{"ID":"9007199254740993","Next":"9223372036854775807","Lines":{"7":1}}`
	if got, err := json.Marshal(whole); err != nil || string(got) != text {
		t.Errorf("%s, %v", got, err)
	}
	for _, text := range []string{text, `{"ID":9007199254740993,"Next":9223372036854775807,"Lines":{"7":1}}`} {
		var got order
		if err := json.Unmarshal([]byte(text), &got); err != nil || !reflect.DeepEqual(got, whole) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	kept := order{ID: 5}
	if err := json.Unmarshal([]byte(`{"ID":null}`), &kept); err != nil || kept.ID != 5 {
		t.Errorf("null: %v, %v", kept.ID, err)
	}
	for _, text := range []string{`""`, `"`, `-1`, `"-1"`, `"+1"`, `1.0`, `1e3`, `" 1"`, `9223372036854775808`, `"\u0031"`, `true`, `[]`} {
		id := ID(5)
		if err := json.Unmarshal([]byte(text), &id); err == nil || id != 5 {
			t.Errorf("%s was read as %d", text, id)
		}
	}
}

// An echo is a database whose only row is the argument of the query, as a driver returns it.
type echo struct{ asBytes bool }

func (e echo) Connect(context.Context) (driver.Conn, error) { return e, nil }
func (e echo) Driver() driver.Driver                        { return nil }
func (e echo) Prepare(string) (driver.Stmt, error)          { return e, nil }
func (e echo) Close() error                                 { return nil }
func (e echo) Begin() (driver.Tx, error)                    { return nil, driver.ErrSkip }
func (e echo) NumInput() int                                { return 1 }
func (e echo) Exec([]driver.Value) (driver.Result, error)   { return nil, driver.ErrSkip }
func (e echo) Query(arguments []driver.Value) (driver.Rows, error) {
	if e.asBytes {
		arguments[0] = []byte("9223372036854775807")
	}
	return &echoed{arguments}, nil
}

type echoed struct{ row []driver.Value }

func (e *echoed) Columns() []string { return []string{"id"} }
func (e *echoed) Close() error      { return nil }
func (e *echoed) Next(row []driver.Value) error {
	if e.row == nil {
		return io.EOF
	}
	copy(row, e.row)
	e.row = nil
	return nil
}

// Goal: database/sql hands an id to a driver as an int64, and scans an int64 or text, without methods of ours.
func TestSQLOfIDs(t *testing.T) {
	for _, asBytes := range []bool{false, true} {
		db := sql.OpenDB(echo{asBytes})
		var got ID
		if err := db.QueryRow("SELECT ?", ID(1<<63-1)).Scan(&got); err != nil || got != 1<<63-1 {
			t.Errorf("%v, %v", got, err)
		}
		var plain int64
		if err := db.QueryRow("SELECT ?", ID(1<<63-1)).Scan(&plain); err != nil || plain != 1<<63-1 {
			t.Errorf("%v, %v", plain, err)
		}
	}
}
