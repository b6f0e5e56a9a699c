module github.com/guideway/guideway

go 1.26.0

require (
	github.com/cespare/xxhash/v2 v2.3.0
	golang.org/x/sys v0.50.0
	google.golang.org/protobuf v1.36.12
)
