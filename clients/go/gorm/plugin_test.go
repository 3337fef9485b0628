package snowmintgorm_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	snowmint "github.com/snowmint/snowmint/clients/go"
	snowmintgorm "github.com/snowmint/snowmint/clients/go/gorm"
	"gorm.io/gorm"
	"gorm.io/gorm/utils/tests"
)

type item struct {
	ID      snowmint.ID
	OrderID snowmint.ID
	Name    string
}

type order struct {
	ID    snowmint.ID `gorm:"primaryKey;autoIncrement:false" snowmint:"orders"`
	Items []item
	// seen is the id at the time of the hook.
	seen snowmint.ID
}

func (o *order) BeforeCreate(*gorm.DB) error {
	o.seen = o.ID
	return nil
}

type membership struct {
	UserID  snowmint.ID `gorm:"primaryKey;autoIncrement:false"`
	GroupID snowmint.ID `gorm:"primaryKey;autoIncrement:false"`
	Ticket  snowmint.ID `snowmint:"tickets"`
}

type lost struct {
	ID snowmint.ID `snowmint:"nowhere"`
}

// open returns a database that executes nothing, with ids of a server that gives each namespace a range of its own: `orders`
// from 1000, others from 1. Unlisted namespaces are unknown.
func open(t *testing.T) *gorm.DB {
	return openWith(t, &gorm.Config{DryRun: true})
}

func openWith(t *testing.T, config *gorm.Config) *gorm.DB {
	var orders, others atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next := &others
		switch path.Base(r.URL.Path) {
		case "orders":
			next = &orders
			next.CompareAndSwap(0, 999)
		case "default", "tickets":
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"type":"urn:snowmint:unknown-namespace"}`)
			return
		}
		var count int64
		fmt.Sscan(r.URL.Query().Get("count"), &count)
		fmt.Fprintf(w, `{"ranges":[{"first":"%d","count":%d,"step":"1"}]}`, next.Add(count)-count+1, count)
	}))
	t.Cleanup(server.Close)
	client, err := snowmint.New(snowmint.Options{
		Servers: []string{server.URL}, MaxAge: snowmint.Unlimited, Buffer: &snowmint.BufferSize{},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	db, err := gorm.Open(tests.DummyDialector{}, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Use(snowmintgorm.Plugin{Client: client, Namespace: "default"}); err != nil {
		t.Fatal(err)
	}
	return db
}

// Goal: rows get ids before their hooks and their SQL, from the namespace of their tag, and so do rows of associations.
func TestRowsGetIDs(t *testing.T) {
	db := open(t)
	o := order{Items: []item{{Name: "a"}, {Name: "b"}}}
	if err := db.Create(&o).Error; err != nil {
		t.Fatal(err)
	}
	want := order{ID: 1000, seen: 1000, Items: []item{{1, 1000, "a"}, {2, 1000, "b"}}}
	if !reflect.DeepEqual(o, want) {
		t.Errorf("%+v: expected %+v", o, want)
	}
	one := item{Name: "c"}
	if vars := db.Create(&one).Statement.Vars; !contains(vars, snowmint.ID(3)) {
		t.Errorf("variables of the SQL: %v", vars)
	}
}

func contains(vars []any, want any) bool {
	for _, v := range vars {
		if v == want {
			return true
		}
	}
	return false
}

// Goal: ids that are set stay, in slices of structs and of pointers.
func TestIDsThatAreSetStay(t *testing.T) {
	db := open(t)
	structs := []item{{Name: "a"}, {ID: 77, Name: "b"}, {Name: "c"}}
	if err := db.Create(&structs).Error; err != nil || structs[0].ID != 1 || structs[1].ID != 77 || structs[2].ID != 2 {
		t.Errorf("%v, %v", structs, err)
	}
	pointers := []*item{{ID: 88}, {Name: "d"}}
	if err := db.Create(pointers).Error; err != nil || pointers[0].ID != 88 || pointers[1].ID != 3 {
		t.Errorf("%v %v, %v", pointers[0], pointers[1], err)
	}
}

// Goal: the parts of a composite key refer to other rows and are not filled; a field with a tag is.
func TestCompositeKeys(t *testing.T) {
	m := membership{UserID: 5}
	if err := open(t).Create(&m).Error; err != nil || m != (membership{5, 0, 1}) {
		t.Errorf("%+v, %v", m, err)
	}
}

// Goal: a field that the statement leaves out stays 0, so that no row in memory has an id that the database does not know.
func TestFieldsThatAreLeftOutStay(t *testing.T) {
	type shared struct {
		ID      snowmint.ID `snowmint:"-"`
		Ticket  snowmint.ID `snowmint:"tickets"`
		Shown   snowmint.ID `gorm:"->" snowmint:"tickets"`
		Ignored snowmint.ID `gorm:"-" snowmint:"tickets"`
	}
	db := open(t)
	for _, create := range []func(*shared) *gorm.DB{
		func(s *shared) *gorm.DB { return db.Omit("Ticket").Create(s) },
		func(s *shared) *gorm.DB { return db.Select("ID").Create(s) },
	} {
		var s shared
		if tx := create(&s); tx.Error != nil || s != (shared{}) {
			t.Errorf("%+v, %v", s, tx.Error)
		}
	}
	var s shared
	if err := db.Create(&s).Error; err != nil || s != (shared{Ticket: 1}) {
		t.Errorf("%+v, %v", s, err)
	}
}

// Goal: rows that cannot be filled are an error, and neither a panic nor a row without an id.
func TestRowsThatCannotBeFilled(t *testing.T) {
	type plain struct {
		ID int64 `snowmint:"orders"`
	}
	type pointer struct {
		ID *snowmint.ID `snowmint:"orders"`
	}
	db := open(t)
	for _, row := range []any{&plain{}, &pointer{}} {
		if err := db.Create(row).Error; err == nil || !strings.Contains(err.Error(), "expected a field of the type snowmint.ID") {
			t.Errorf("%T: %v", row, err)
		}
	}
	for _, rows := range []any{item{Name: "a"}, [1]item{}} {
		if err := db.Create(rows).Error; !errors.Is(err, gorm.ErrInvalidValue) {
			t.Errorf("%T: %v", rows, err)
		}
	}
	if err := db.Create(item{ID: 5, Name: "a"}).Error; err != nil {
		t.Error(err)
	}
}

// A pool counts transactions.
type pool struct {
	gorm.ConnPool
	begun int
}

func (p *pool) BeginTx(context.Context, *sql.TxOptions) (gorm.ConnPool, error) {
	p.begun++
	return &tx{}, nil
}

type tx struct{ gorm.ConnPool }

func (*tx) Commit() error   { return nil }
func (*tx) Rollback() error { return nil }

// Goal: ids are there before the transaction, which would keep a connection of the database while the server is slow.
func TestIDsComeBeforeTheTransaction(t *testing.T) {
	for _, skip := range []bool{false, true} {
		pool := new(pool)
		db := openWith(t, &gorm.Config{DryRun: true, ConnPool: pool, SkipDefaultTransaction: skip})
		if err := db.Create(&lost{}).Error; !errors.Is(err, snowmint.UnknownNamespace) || pool.begun != 0 {
			t.Errorf("%v, %d transactions", err, pool.begun)
		}
		var o order
		if err := db.Create(&o).Error; err != nil || o.seen == 0 || pool.begun != 1 && !skip {
			t.Errorf("%v, %+v, %d transactions", err, o, pool.begun)
		}
	}
}

// Goal: an error of Snowmint is the error of the statement, and no SQL is executed.
func TestErrors(t *testing.T) {
	tx := open(t).Create(&lost{})
	if !errors.Is(tx.Error, snowmint.UnknownNamespace) || tx.Statement.SQL.Len() != 0 {
		t.Errorf("%v, %q", tx.Error, tx.Statement.SQL.String())
	}
	if err := open(t).Use(snowmintgorm.Plugin{}); err == nil {
		t.Error("a plugin without a client was accepted")
	}
}
