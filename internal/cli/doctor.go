package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/check"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
)

// maxSkew is how far the clock of this machine may be from that of the service before tokens look wrong: they are taken
// up to 60 s before their time.
const maxSkew = 30 * time.Second

func doctorCommand(a *app) *cobra.Command {
	var cfg server.Config
	var operator string
	c := command("doctor", "Check the configuration and health of a service", nil)
	c.Long = `Check the configuration and health of a service: the configuration file, the configured service, and the API key. With --data or
--database, also check a database on this machine, its master key, and the permissions of its files; with the settings of toll serve, also
its chain, cards, mail server, sign-in provider, proxies, and backups.

Without --url, TOLL_URL, or a profile, the command checks the service of that database, at the address in --listen or else at the public
address in the database. This service may be stopped. If the address is only in the database, the command does not send the API key,
unless the address is on this machine.

The command changes nothing and sends no mail. The exit code is 1 if a check fails; warnings do not count.`
	c.Example = "toll doctor\ntoll doctor --data ./toll-data"
	storeFlags(c, &cfg)
	railFlags(c, &cfg.Rails)
	peopleFlags(c, &cfg)
	listenFlags(c, &cfg)
	objectStoreFlags(c, &cfg)
	for _, unused := range []string{"key-prefix", "registration", "no-passwords", "backup-keep"} {
		c.Flags().Lookup(unused).Hidden = true
	}
	c.Flags().StringVar(&operator, "metrics-listen", "", "value of --metrics-listen of the service, to check its background work")
	env(c.Flags(), "metrics-listen")
	c.Annotations = withoutProfile
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		d := &doctor{app: a, absent: check.Failed, noKey: "no API key is set: only public data can be read"}
		var inspected check.List
		address, inspects := "", cfg.Data != "" || cfg.Database != ""
		if inspects {
			cfg.Release = release()
			inspected, address = server.Inspect(cmd.Context(), cfg)
		}
		d.configuration()
		if d.profile() {
			d.environment = strings.ToLower(cmp.Or(string(cfg.Environment), a.set.environment))
			if inspects && a.set.url == "" {
				d.serviceOf(address)
			}
			d.service(cmd.Context())
		}
		if operator != "" {
			d.loops(cmd.Context(), operator)
		}
		d.checks = append(d.checks, inspected...)
		return d.report()
	}
	return c
}

type doctor struct {
	app         *app
	checks      check.List
	environment string // that is expected of the service, "" for any
	absent      string // status of a service that does not answer
	hint        string // what to do then
	noKey       string // why the API key was not checked
}

func (d *doctor) add(name, status, format string, args ...any) {
	d.checks.Add(name, status, format, args...)
}

func (d *doctor) configuration() {
	path, named := d.app.configPath()
	info, err := os.Stat(path)
	switch {
	case path == "" || err != nil && !named:
		d.add("configuration", check.OK, "no file: only flags and environment variables apply")
		return
	case errors.Is(err, fs.ErrNotExist):
		d.add("configuration", check.Failed, "%s", noConfig(path))
		return
	case err != nil:
		d.add("configuration", check.Failed, "%s", err)
		return
	case info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows":
		d.add("configuration", check.Warning, "%s can be read by other users: run chmod 600 on it", path)
	default:
		d.add("configuration", check.OK, "%s", path)
	}
	left, _ := newConfiguration.Left(filepath.Dir(path)) // what cannot be read was said above
	for _, name := range left {
		d.add("configuration", check.Warning,
			"a killed command left %s, which contains API keys: the next toll config set deletes this file",
			filepath.Join(filepath.Dir(path), name))
	}
}

// profile reports whether there are settings to go on with.
func (d *doctor) profile() bool {
	stderr := d.app.err
	d.app.err = io.Discard // what it warns of is a check of its own here
	err := d.app.loadProfile()
	d.app.err = stderr
	if err != nil {
		d.add("profile", check.Failed, "%s", err)
	}
	return err == nil
}

// serviceOf sets the address to the one that a database names, "" for the default. The API key may belong to another service, so it is
// sent only if the address is on this machine.
func (d *doctor) serviceOf(address string) {
	d.absent, d.hint, d.app.set.url = check.Warning, "; the service may be stopped. If it runs at another address, set --url", address
	if u, err := url.Parse(address); d.app.set.key != "" && address != "" && (err != nil || !toll.IsLoopback(u.Hostname())) {
		d.app.set.key, d.noKey = "", "not sent to "+address+", because this address is only in the database: set --url to check the key"
	}
}

func (d *doctor) service(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	c := d.app.client()
	var health struct {
		Service string `json:"service"`
		Version string `json:"version"`
	}
	began := time.Now()
	header, err := fetch(ctx, c.URL()+"/health", &health)
	if err != nil {
		d.add("service", d.absent, "%s does not answer: %s%s", c.URL(), err, d.hint)
		return
	}
	took := time.Since(began)
	if health.Service == "" {
		d.add("service", d.absent, "the server at %s is not a Toll service%s", c.URL(), d.hint)
		return
	}
	d.add("service", check.OK, "%s at %s, release %s, answered in %s", health.Service, c.URL(), health.Version, took.Round(time.Millisecond))
	if there, err := http.ParseTime(header.Get("Date")); err == nil {
		if skew := began.Add(took / 2).Sub(there).Round(time.Second); skew.Abs() > maxSkew {
			d.add("clock", check.Warning, "the clock of this machine differs from the clock of the service by %s", skew)
		} else {
			d.add("clock", check.OK, "differs from the clock of the service by at most %s", max(skew.Abs(), time.Second))
		}
	}
	ready, err := c.Ready(ctx)
	if err != nil || ready.Status != "ready" {
		checks := ""
		if err == nil {
			checks = ready.Checks["database"]
		}
		d.add("ready", check.Failed, "the service is not ready: database %s; see the log of the service", cmp.Or(checks, "unknown"))
	} else {
		text := "database " + ready.Checks["database"]
		for _, k := range rails.Kinds {
			text += ", " + k.Check + " " + ready.Checks[k.Check]
		}
		d.add("ready", check.OK, "%s", text)
		for _, k := range rails.Kinds {
			switch ready.Checks[k.Check] {
			case "failing":
				d.add(k.Check, check.Warning, "%s cannot be ordered now: see the log of the service, or run toll doctor on its machine with --data or --database and its settings for %s", k.Plans, k.Settings)
			case "off":
				d.add(k.Check, check.OK, "off: %s cannot be ordered", k.Plans)
			}
		}
	}
	d.key(ctx, c)
}

// loops reports background work of the service that fails.
func (d *doctor) loops(ctx context.Context, operator string) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var loops []jobs.Status
	if _, err := fetch(ctx, "http://"+operator+"/loops", &loops); err != nil {
		d.add("background work", check.Warning, "the operator's listener at %s does not answer: %s", operator, err)
		return
	}
	works := true
	for _, l := range loops {
		if l.Error != "" {
			works = false
			d.add("background work", check.Warning, "%s has been failing since %s: %s", l.Name, l.Failing.UTC().Format(time.RFC3339), l.Error)
		}
	}
	if works {
		d.add("background work", check.OK, "%d loops, all working", len(loops))
	}
}

// fetch reads a document of the service, whatever the status of the answer is.
func fetch(ctx context.Context, address string, into any) (http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, cause(err)
	}
	defer res.Body.Close()
	return res.Header, json.NewDecoder(io.LimitReader(res.Body, maxArgument)).Decode(into)
}

func (d *doctor) key(ctx context.Context, c *client.Client) {
	info, err := c.Info(ctx)
	if err != nil {
		d.add("API versions", check.Failed, "%s", err)
		return
	}
	if d.environment != "" && d.environment != string(info.Environment) {
		d.add("environment", check.Failed, "the service runs in %s, but the settings name %s: fix --url, or --environment, TOLL_ENVIRONMENT, or the profile (toll config set environment %s)",
			info.Environment, d.environment, info.Environment)
	} else {
		d.add("environment", check.OK, "%s, network %s", info.Environment, info.Network)
	}
	if d.app.set.key == "" {
		d.add("API key", check.Warning, "%s", d.noKey)
		return
	}
	versions, err := c.Versions(ctx)
	if err != nil {
		d.add("API key", check.Failed, "%s", err)
		return
	}
	d.add("API key", check.OK, "%s is accepted", masked(d.app.set.key))
	d.add("API versions", check.OK, "this program uses %s, and the service supports %s to %s", client.Version, versions.Floor, versions.Current)
}

func (d *doctor) report() error {
	a := d.app
	failed := slices.ContainsFunc(d.checks, func(c check.Check) bool { return c.Status == check.Failed })
	found := struct {
		OK     bool       `json:"ok"`
		Checks check.List `json:"checks"`
	}{!failed, d.checks}
	if err := a.showPage(found, list.Local("checks", list.Name("check"), list.State("status"), list.Text("detail"))); err != nil {
		return err
	}
	if failed {
		return printed(exitFailed)
	}
	return nil
}
