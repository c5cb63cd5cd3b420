# make prints these targets.
.DEFAULT_GOAL := help
.PHONY: help test test-all test-short test-race test-plain test-stores test-interop mutate crash fuzz bench bench-guard screens sdk release lint clean

help: ## print this
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

test: ## pass every test on three stores, and on SQLite with the race detector (installs PostgreSQL when missing)
	sh scripts/test.sh

test-all: ## the same with long rounds: 1,000 kills, long random sequences (takes hours)
	sh scripts/test.sh -all

test-race: ## lane 1 of 4, which together are make test: SQLite and the embedded chain with the race detector
	sh scripts/test.sh -lane race

test-plain: ## lane 2 of 4: gofmt, vet, staticcheck, builds, the demo, whole services
	sh scripts/test.sh -lane plain

test-stores: ## lane 3 of 4: PostgreSQL, partitions, anvil, and large tests
	sh scripts/test.sh -lane stores

test-interop: ## lane 4 of 4: third-party software against the program
	sh scripts/test.sh -lane interop

test-gateway: ## the plugin in a real chat host, in all its ways (800 MB from npm, once)
	TOLL_TEST_ALL=1 go test -count=1 -timeout 30m -v -run 'OpenClaw' ./interop

test-short: ## make test without the race detector
	sh scripts/test.sh -short

mutate: ## change the code in hundreds of places, one at a time, and see a test fail (MUTANTS=pattern for some of them)
	TOLL_TEST_ALL=1 CGO_ENABLED=0 go test -count=1 -timeout 6h -v -run TestMutants ./internal/store/rounds -mutants '$(MUTANTS)'

crash: ## kill the service 1,000 times under load on each store
	sh scripts/named.sh TestServiceKilledUnderLoad
	sh scripts/postgres.sh run go test -count=1 -timeout 4h -run '^TestServiceKilledUnderLoad$$' ./internal/server -crash-rounds 1000 -v

fuzz: ## fuzz every target for 30 seconds
	sh scripts/fuzz.sh 30s

bench: ## side-by-side benchmarks: a table, and JSON in bench/results
	sh scripts/postgres.sh run go run ./bench

bench-guard: ## compare verify and settle with the commit in bench/BASE, fail below 0.8
	sh scripts/bench-guard.sh

screens: ## pictures of every page, light, dark and narrow, in screens/, and those of the documents
	TOLL_TEST_PICTURES="$(CURDIR)/screens" go test -count=1 -timeout 30m -v -run 'TestScreens|TestJourney|TestPeopleInABrowser|TestPagesOfOrders' ./interop

sdk: ## build the packages of the SDKs that the service serves (sdk/packages), after a change of their sources
	python3 sdk/build.py

release: ## build programs and packages in dist/, without publishing them
	sh scripts/package.sh release --snapshot

lint: ## gofmt, vet, staticcheck
	sh scripts/test.sh -lint

clean: ## remove what builds, tests and benchmarks leave here; data directories stay
	rm -rf toll build dist bench/results screens
	find . -type f \( -name '*.test' -o -name '*.prof' \) -exec rm -f {} +
