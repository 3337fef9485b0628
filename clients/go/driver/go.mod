module github.com/snowmint/snowmint/clients/go/driver

go 1.19

require github.com/snowmint/snowmint/clients/go v0.1.0

replace github.com/snowmint/snowmint/clients/go => ../
