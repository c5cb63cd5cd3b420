package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/backup"
	"github.com/tollhq/toll/internal/check"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/store"
)

// remoteTime bounds how long the checks of other systems take together. An endpoint of a chain has 5 s for an answer.
const remoteTime = 8 * time.Second

// Inspect looks for what is careless or broken about a database and its configuration: modes of files, the master key, the
// settings of the engine, the schema, the rails, mail, the sign-in provider, proxies, backups. It refuses nothing; the checks say what is
// wrong and what to do. address is where the service answers: at Listen if that is not the default, else its public address, or "" when
// the database cannot be read. Backups.Every also bounds the age of noted backups.
func Inspect(ctx context.Context, cfg Config) (checks check.List, address string) {
	cfg = cfg.withDefaults()
	if cfg.Listen != DefaultListen {
		address = cfg.listenURL()
	}
	add := checks.Add
	if err := cfg.existing(); err != nil {
		add("database", check.Failed, "%s: start toll serve there, or choose another database with --data or --database", err)
		return checks, address
	}
	if cfg.Database == "" {
		inspectDirectory(cfg.Data, add)
	}
	database := cfg // faults of other settings have checks of their own
	database.Mail, database.OIDC, database.Backups, database.TrustedProxies = people.MailConfig{}, people.OIDCConfig{}, backup.Schedule{}, ""
	f, ok := inspectSchema(ctx, database, add)
	if !ok {
		return checks, address
	}
	defer func() { _ = f.close() }() // nothing was written
	if !cfg.ownMasterKey() {
		add("master key", check.Warning, "%s is stored next to the database, so a copy of the directory contains both: set TOLL_MASTER_KEY_FILE (--master-key-file)",
			cfg.masterKeyPath())
	} else {
		add("master key", check.OK, "the master key with the id %s opens the stored secrets", f.ring.KeyID())
	}
	inspectMaster(ctx, cfg, f, add)
	public := publicURL(f.auth.Issuer())
	guess, err := setting(ctx, f.store, settingProvisional)
	switch {
	case err != nil:
		add("public address", check.Failed, "%s", err)
	case guess != "":
		add("public address", check.Warning, "not known yet; the first start of the service stores it")
	default:
		add("public address", check.OK, "%s", public)
	}
	inspectProxies(cfg.TrustedProxies, public, add)
	inspectRecovery(ctx, f.store, add)
	remote, cancel := context.WithTimeout(ctx, remoteTime)
	defer cancel()
	var inspections []func(check.Report)
	for _, s := range cfg.Rails.All() {
		inspections = append(inspections, func(add check.Report) { s.Inspect(remote, f.railDeps(cfg), add) })
	}
	checks = append(checks, sideBySide(append(inspections,
		func(add check.Report) { inspectBackups(remote, cfg, f, add) },
		func(add check.Report) { inspectMail(remote, cfg.Mail, add) },
		func(add check.Report) { inspectProvider(remote, cfg.OIDC, add) },
	)...)...)
	return checks, cmp.Or(address, public)
}

// sideBySide runs inspections at the same time and returns their checks in the order of the inspections.
func sideBySide(inspections ...func(add check.Report)) check.List {
	found := make([]check.List, len(inspections))
	var all sync.WaitGroup
	for i, inspect := range inspections {
		all.Go(func() { inspect(found[i].Add) })
	}
	all.Wait()
	return slices.Concat(found...)
}

// inspectProxies reports whether the service knows the addresses of callers, by which it limits them. The service itself has no TLS, so a
// public address with https belongs to a proxy.
func inspectProxies(trusted, public string, add check.Report) {
	const name, set = "proxies", "TOLL_TRUSTED_PROXIES (--trusted-proxies)"
	proxies, err := api.ParseProxies(trusted)
	u, urlErr := url.Parse(public)
	switch {
	case err != nil:
		add(name, check.Failed, "%s: fix %s", err, set)
	case slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Bits() == 0 }):
		add(name, check.Warning, "%s trusts every address, so callers can forge the address that the rate limit uses: list only your proxies in %s", trusted, set)
	case len(proxies) == 0 && urlErr == nil && u.Scheme == "https" && !toll.IsLoopback(u.Hostname()):
		add(name, check.Warning, "%s is served by a proxy, but no proxy is trusted, so all callers share one rate limit: set %s", public, set)
	default:
		add(name, check.OK, "%s", cmp.Or(trusted, "no proxy is trusted; callers connect directly"))
	}
}

// lateBackup is how late a backup may be: the schedule relies on its list for an hour, and a copy takes time.
const lateBackup = 2 * time.Hour

// inspectBackups reports the age of the newest backup, and whether its folder can be written. It writes nothing, so for an object store
// only the age shows whether the key may write.
func inspectBackups(ctx context.Context, cfg Config, f *foundation, add check.Report) {
	const name = "backups"
	dir := cfg.Backups.Dir
	last, err := store.NotedBackup(ctx, f.store)
	if err == nil {
		err = cfg.checkBackups()
	}
	if err == nil && dir != "" {
		var made []backup.Scheduled
		last = time.Time{} // noted backups are of other tools
		if made, err = ListBackups(ctx, cfg, dir); len(made) > 0 {
			last = made[len(made)-1].At
		}
		if _, there := os.Stat(dir); err == nil && there == nil && store.CanWrite(dir) != nil {
			err = fmt.Errorf("%s cannot be written", dir)
		}
	}
	age := f.clock.machine().Sub(last).Round(time.Second)
	switch {
	case err != nil:
		add(name, check.Failed, "%s", err)
	case last.IsZero() && dir != "":
		add(name, check.Warning, "%s has no backup yet; a running service creates the first one immediately", dir)
	case last.IsZero() && f.auth.Environment() != toll.Live:
		add(name, check.OK, "no backup recorded; acceptable for a sandbox")
	case last.IsZero():
		add(name, check.Warning, "no backup recorded: set TOLL_BACKUP_DIR (--backup-dir); on PostgreSQL, run toll backup --record after each dump")
	case age > cfg.Backups.Every+lateBackup:
		add(name, check.Warning, "the newest backup is %s old, but TOLL_BACKUP_EVERY (--backup-every) is %s", age, cfg.Backups.Every)
	default:
		add(name, check.OK, "the newest backup is %s old", age)
	}
}

func inspectMail(ctx context.Context, cfg people.MailConfig, add check.Report) {
	if err := cfg.Reach(ctx); err != nil {
		add("mail", check.Failed, "%s", err)
	} else {
		add("mail", check.OK, "%s", cmp.Or(cfg.URL, "off; no sign-in codes are sent"))
	}
}

func inspectProvider(ctx context.Context, cfg people.OIDCConfig, add check.Report) {
	const name = "sign-in provider"
	if err := cfg.Reach(ctx); err != nil {
		add(name, check.Failed, "%s", err)
	} else if cfg.Issuer != "" && cfg.ClientSecret == "" {
		add(name, check.Warning, "%s responds. Without TOLL_OIDC_CLIENT_SECRET, this service must be registered there as a public client", cfg.Issuer)
	} else {
		add(name, check.OK, "%s", cmp.Or(cfg.Issuer, "off"))
	}
}

// inspectSchema says whether this release can work with a database, and opens it if so.
func inspectSchema(ctx context.Context, cfg Config, add check.Report) (*foundation, bool) {
	schema, err := cfg.schema(ctx)
	if err == nil {
		if err = schema.Usable(); errors.Is(err, store.ErrOlderSchema) {
			pending := schema.Pending()
			beside := "stop the service first"
			if len(schema.Unsafe()) == 0 {
				beside = "with --online the service can keep running"
			}
			add("database", check.Warning, "schema %d; %d migrations to schema %d are pending. The release "+
				"that uses the database now can continue. To upgrade, run toll migrate (%s). No other "+
				"database checks were run", schema.Version, len(pending), schema.Known, beside)
			return nil, false
		}
	}
	var f *foundation
	if err == nil {
		f, err = open(ctx, cfg, Reading)
	}
	if err != nil {
		add("database", check.Failed, "%s", err)
		return nil, false
	}
	add("database", check.OK, "%s, %s, schema %d, commits are durable", f.store.Engine(), f.auth.Environment(), schema.Version)
	return f, true
}

// lowDisk is the free space below which [Inspect] warns, and scarceDisk that below which it finds a
// fault: the database writes its log in advance, and a checkpoint needs room for it again.
const (
	lowDisk    = 512 << 20
	scarceDisk = 32 << 20
)

// inspectDirectory says who can read the data directory, whether it can be written, and what room there is.
func inspectDirectory(dir string, add check.Report) {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		add("data directory", check.Failed, "%s", err)
	case info.Mode().Perm()&0o077 != 0:
		add("data directory", check.Warning, "other users can access %s: run chmod 700 on it", dir)
	default:
		add("data directory", check.OK, "%s", dir)
	}
	if err := store.CanWrite(dir); err != nil {
		add("data directory", check.Failed, "%s cannot be written: %s", dir, err)
	}
	for _, kind := range backup.Copies {
		names, _ := kind.Left(dir) // what cannot be read was said above
		for _, name := range names {
			add("data directory", check.Warning, "%s is an unencrypted copy of the database, left by a killed "+
				"command: the next start of the service removes it, and so does the next toll backup or "+
				"toll restore", filepath.Join(dir, name))
		}
	}
	free, ok := store.FreeBytes(dir)
	if !ok {
		return
	}
	size := int64(0)
	if info, err := os.Stat(filepath.Join(dir, databaseName)); err == nil {
		size = info.Size()
	}
	switch {
	case free < scarceDisk:
		add("disk", check.Failed, "%d MiB free for %s: free up space, or the service will stop accepting writes", free>>20, dir)
	case free < max(lowDisk, size):
		add("disk", check.Warning, "%d MiB free for %s; a backup needs %d MiB there, and the database keeps growing", free>>20, dir, size>>20)
	default:
		add("disk", check.OK, "%d MiB free for %s", free>>20, dir)
	}
}
