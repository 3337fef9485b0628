module github.com/snowmint/snowmint/clients/go/gorm

go 1.19

require (
	github.com/snowmint/snowmint/clients/go v0.1.0
	gorm.io/gorm v1.25.12
)

require (
	github.com/jinzhu/inflection v1.0.0 // indirect
	github.com/jinzhu/now v1.1.5 // indirect
	golang.org/x/text v0.14.0 // indirect
)

replace github.com/snowmint/snowmint/clients/go => ../
