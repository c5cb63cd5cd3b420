# make prints these targets.
.DEFAULT_GOAL := help
.PHONY: help test test-short crash fuzz bench lint

help: ## print this
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

test: ## pass every test: three stores, race detector (installs PostgreSQL when missing)
	sh scripts/test.sh

test-short: ## the same without the race detector
	sh scripts/test.sh -short

crash: ## kill the service 1,000 times under load on each store
	sh scripts/postgres.sh run go test -count=1 -timeout 4h -run 'F02_Service' ./internal/server -crash-rounds 1000 -v

fuzz: ## fuzz every target for 30 seconds
	sh scripts/fuzz.sh 30s

bench: ## side-by-side benchmarks: a table, and JSON in bench/results
	go run ./bench

lint: ## gofmt, vet, staticcheck
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	go vet ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
