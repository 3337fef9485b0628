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

// Plugin fills ids that are 0 before GORM inserts rows, before the transaction and the hooks BeforeSave and BeforeCreate.
//
// It fills the primary key if its type is [snowmint.ID], and each other field of this type with the tag `snowmint:"NAMESPACE"`.
// The tag `snowmint:"-"` excludes a primary key, for instance one that refers to another row.
//
// Ids that are set stay. A slice of rows gets its ids in one call, with the context of the statement. An error of Snowmint ends
// the statement before the database sees it. Rows that are maps are not filled, and neither are fields that Select or Omit leave
// out. If an upsert (OnConflict) finds the row in the database, that row keeps its primary key.
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
	// Before all others, so that no transaction waits for a server.
	return db.Callback().Create().Before("*").Register("snowmint:ids", p.fill)
}

// fill fills the fields of all rows of a statement.
func (p Plugin) fill(db *gorm.DB) {
	if db.Error != nil || db.Statement.Schema == nil {
		return
	}
	selected, restricted := db.Statement.SelectAndOmitColumns(true, false)
	for _, field := range db.Statement.Schema.Fields {
		isSelected, isNamed := selected[field.DBName]
		if !field.Creatable || isNamed && !isSelected || !isNamed && restricted {
			continue
		}
		namespace, err := p.namespace(db.Statement.Schema, field)
		if err == nil && namespace != "" {
			err = p.fillField(db, field, namespace)
		}
		if err != nil {
			_ = db.AddError(fmt.Errorf("%s.%s: %w", db.Statement.Schema.Name, field.Name, err))
			return
		}
	}
}

// namespace returns the namespace of a field; "" if the plugin does not fill it.
func (p Plugin) namespace(s *schema.Schema, field *schema.Field) (string, error) {
	name := field.Tag.Get("snowmint")
	switch {
	case name == "-":
		return "", nil
	case name != "" && field.FieldType != idType:
		return "", fmt.Errorf("invalid tag `snowmint:%q`: expected a field of the type snowmint.ID", name)
	case name != "":
		return name, nil
	// A part of a composite key, as in the table of a many-to-many relation, refers to another row.
	case field.FieldType == idType && field == s.PrioritizedPrimaryField && len(s.PrimaryFields) == 1:
		return p.Namespace, nil
	}
	return "", nil
}

func (p Plugin) fillField(db *gorm.DB, field *schema.Field, namespace string) error {
	ctx := db.Statement.Context
	var empty []reflect.Value
	for _, row := range rows(db.Statement.ReflectValue) {
		if _, isZero := field.ValueOf(ctx, row); isZero {
			if !row.CanAddr() {
				return fmt.Errorf("%w: expected a pointer, to return the id", gorm.ErrInvalidValue)
			}
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
