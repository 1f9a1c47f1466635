module xebec.test/gotools

go 1.22
