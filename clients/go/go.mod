module github.com/snowmint/snowmint/clients/go

go 1.19
