module github.com/snowmint/snowmint/clients/go/bench

go 1.19

require (
	github.com/bwmarrin/snowflake v0.3.0
	github.com/google/uuid v1.6.0
	github.com/snowmint/snowmint/clients/go v0.1.0
	github.com/sony/sonyflake v1.2.0
)

replace github.com/snowmint/snowmint/clients/go => ../
