# make prints these targets.
.DEFAULT_GOAL := help
.PHONY: help test test-short crash fuzz bench lint clean

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
	sh scripts/test.sh -lint

clean: ## remove what builds, tests and benchmarks leave here; data directories stay
	rm -rf toll bench/results
	find . -type f \( -name '*.test' -o -name '*.prof' \) -exec rm -f {} +
