module github.com/guideway/guideway

go 1.26.0

require (
	github.com/cespare/xxhash/v2 v2.3.0
	github.com/fsnotify/fsnotify v1.10.1
	github.com/hashicorp/golang-lru/v2 v2.0.7
	golang.org/x/sys v0.50.0
	google.golang.org/protobuf v1.36.12
)
