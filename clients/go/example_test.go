package snowmint_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	snowmint "github.com/snowmint/snowmint/clients/go"
)

func Example() {
	client, err := snowmint.New(snowmint.Options{
		Servers:   []string{"https://ids-1.internal:8080", "https://ids-2.internal:8080"},
		TokenFile: "/run/secrets/snowmint-token",
		// The numbers of a segment do not age.
		NamespaceMaxAge: map[string]time.Duration{"invoices": snowmint.Unlimited},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	orders := client.Namespace("orders")

	id, err := orders.Next(context.Background())
	if errors.Is(err, snowmint.UnknownNamespace) {
		log.Fatal("create the namespace first")
	} else if err != nil {
		log.Fatal(err)
	}
	fmt.Println(id)
}
