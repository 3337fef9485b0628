// Package snowmintgorm gives the rows that GORM creates ids from Snowmint.
//
//	db.Use(snowmintgorm.Plugin{Client: client, Namespace: "default"})
//
//	type Order struct {
//		ID   snowmint.ID `gorm:"primaryKey;autoIncrement:false" snowmint:"orders"`
//		Item string
//	}
package snowmintgorm

import (
	"errors"
	"fmt"
	"reflect"

	snowmint "github.com/snowmint/snowmint/clients/go"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// Plugin fills ids that are 0 before GORM inserts rows, before the hooks BeforeSave and BeforeCreate.
//
// It fills the primary key if its type is [snowmint.ID], and each other field of this type with the tag `snowmint:"NAMESPACE"`.
// Ids that are set stay. A slice of rows gets its ids in one call, with the context of the statement. An error of Snowmint ends
// the statement before the database sees it. Rows that are maps are not filled.
type Plugin struct {
	// Client is the client to draw from.
	Client *snowmint.Client
	// Namespace is the namespace of primary keys without a tag. If it is "", only fields with a tag are filled.
	Namespace string
}

var idType = reflect.TypeOf(snowmint.ID(0))

// Name returns the name by which GORM knows the plugin.
func (Plugin) Name() string {
	return "snowmint"
}

// Initialize registers the plugin; db.Use calls it.
func (p Plugin) Initialize(db *gorm.DB) error {
	if p.Client == nil {
		return errors.New("snowmintgorm: no client: set Plugin.Client")
	}
	return db.Callback().Create().Before("gorm:before_create").Register("snowmint:ids", p.fill)
}

// fill fills the fields of all rows of a statement.
func (p Plugin) fill(db *gorm.DB) {
	if db.Error != nil || db.Statement.Schema == nil {
		return
	}
	for _, field := range db.Statement.Schema.Fields {
		if namespace := p.namespace(db.Statement.Schema, field); namespace != "" {
			if err := p.fillField(db, field, namespace); err != nil {
				_ = db.AddError(fmt.Errorf("%s.%s: %w", db.Statement.Schema.Name, field.Name, err))
				return
			}
		}
	}
}

// namespace returns the namespace of a field; "" if the plugin does not fill it.
func (p Plugin) namespace(s *schema.Schema, field *schema.Field) string {
	if field.FieldType != idType {
		return ""
	}
	if name := field.Tag.Get("snowmint"); name != "" {
		return name
	}
	// A part of a composite key, as in the table of a many-to-many relation, refers to another row.
	if field == s.PrioritizedPrimaryField && len(s.PrimaryFields) == 1 {
		return p.Namespace
	}
	return ""
}

func (p Plugin) fillField(db *gorm.DB, field *schema.Field, namespace string) error {
	ctx := db.Statement.Context
	var empty []reflect.Value
	for _, row := range rows(db.Statement.ReflectValue) {
		if _, isZero := field.ValueOf(ctx, row); isZero {
			empty = append(empty, row)
		}
	}
	if len(empty) == 0 {
		return nil
	}
	ids, err := p.Client.Namespace(namespace).NextN(ctx, len(empty))
	if err != nil {
		return err
	}
	for i, row := range empty {
		if err := field.Set(ctx, row, ids[i]); err != nil {
			return err
		}
	}
	return nil
}

// rows returns the rows of a statement that are structs.
func rows(value reflect.Value) []reflect.Value {
	switch value.Kind() {
	case reflect.Struct:
		return []reflect.Value{value}
	case reflect.Slice, reflect.Array:
		var found []reflect.Value
		for i := 0; i < value.Len(); i++ {
			if row := reflect.Indirect(value.Index(i)); row.Kind() == reflect.Struct {
				found = append(found, row)
			}
		}
		return found
	default:
		return nil
	}
}
