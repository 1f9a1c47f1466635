module streams

go 1.26

require (
	github.com/klauspost/compress v1.19.2
	github.com/klauspost/pgzip v1.2.6
)
