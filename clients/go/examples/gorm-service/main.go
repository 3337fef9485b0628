// The gorm-service is an HTTP service that stores orders in PostgreSQL through GORM, with ids from Snowmint. It fills its own
// tables by requests to itself, checks that no id came twice, and exits.
//
// SNOWMINT_SERVERS has the URLs of the servers, separated by commas; DATABASE_URL is postgres://USER:PASSWORD@HOST:PORT/DATABASE.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	snowmint "github.com/snowmint/snowmint/clients/go"
	snowmintgorm "github.com/snowmint/snowmint/clients/go/gorm"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// Order is a row. Its JSON has the id as a string.
type Order struct {
	ID    snowmint.ID `json:"id" gorm:"primaryKey;autoIncrement:false"`
	Item  string      `json:"item"`
	Lines []Line      `json:"lines"`
}

// Line is a row of an order, with an id of the same namespace.
type Line struct {
	ID      snowmint.ID `json:"id" gorm:"primaryKey;autoIncrement:false"`
	OrderID snowmint.ID `json:"order_id" gorm:"index"`
	Amount  int         `json:"amount"`
}

const (
	callers = 8
	each    = 250 // orders of each caller, with one line each
)

func main() {
	result, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gorm-service:", err)
		os.Exit(1)
	}
	fmt.Println(result)
}

func run() (string, error) {
	client, err := snowmint.New(snowmint.Options{Servers: strings.Split(os.Getenv("SNOWMINT_SERVERS"), ",")})
	if err != nil {
		return "", err
	}
	defer client.Close()
	db, err := gorm.Open(postgres.Open(os.Getenv("DATABASE_URL")), &gorm.Config{Logger: logger.Default.LogMode(logger.Silent)})
	if err != nil {
		return "", fmt.Errorf("DATABASE_URL: %w", err)
	}
	if err := db.Use(snowmintgorm.Plugin{Client: client, Namespace: "default"}); err != nil {
		return "", err
	}
	if err := db.Migrator().DropTable(&Line{}, &Order{}); err != nil {
		return "", err
	}
	if err := db.AutoMigrate(&Order{}, &Line{}); err != nil {
		return "", err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	service := &http.Server{Handler: handler(db), ReadHeaderTimeout: 5 * time.Second}
	go service.Serve(listener)
	defer service.Close()
	if err := fill("http://" + listener.Addr().String() + "/orders"); err != nil {
		return "", err
	}
	return check(db)
}

// handler creates an order of each request.
func handler(db *gorm.DB) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/orders", func(w http.ResponseWriter, r *http.Request) {
		var order Order
		if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		// The ids of the order and its lines come from Snowmint, within the context of the request.
		if err := db.WithContext(r.Context()).Create(&order).Error; err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		json.NewEncoder(w).Encode(order)
	})
	return mux
}

// fill creates orders by concurrent requests.
func fill(url string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	failed := make(chan error, callers)
	var group sync.WaitGroup
	for n := 0; n < callers; n++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for n := 0; n < each; n++ {
				if err := create(ctx, url, n); err != nil {
					failed <- err
					cancel()
					return
				}
			}
		}()
	}
	group.Wait()
	close(failed)
	return <-failed
}

func create(ctx context.Context, url string, n int) error {
	text := fmt.Sprintf(`{"item":"book","lines":[{"amount":%d}]}`, n)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewBufferString(text))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	var order struct {
		ID string `json:"id"`
	}
	if err != nil || response.StatusCode != http.StatusOK || json.Unmarshal(body, &order) != nil || order.ID == "" {
		return fmt.Errorf("status %d, expected an order with an id: %s", response.StatusCode, body)
	}
	return nil
}

// check compares the number of rows with that of distinct ids, over both tables.
func check(db *gorm.DB) (string, error) {
	var found struct{ Rows, Distinct, Orders int64 }
	err := db.Raw(`WITH ids AS (SELECT id FROM orders UNION ALL SELECT id FROM lines)
		SELECT count(*) AS rows, count(DISTINCT id) AS "distinct",
			(SELECT count(*) FROM orders JOIN lines ON lines.order_id = orders.id WHERE orders.id > 0) AS orders FROM ids`).Scan(&found).Error
	if err != nil {
		return "", err
	}
	if want := int64(callers * each); found.Rows != 2*want || found.Distinct != 2*want || found.Orders != want {
		return "", fmt.Errorf("%+v: expected %d rows with distinct ids, and %d orders with a line", found, 2*want, want)
	}
	return fmt.Sprintf(`{"rows":%d,"distinct":%d}`, found.Rows, found.Distinct), nil
}
