package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/backoff"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/tempfile"
)

// ObjectStore configures an S3-compatible store. Later releases of minio-go require a newer lipgloss, which draws the tables of the command line.
type ObjectStore struct {
	Endpoint string // https://host, without a path; empty is Amazon's
	Region   string // empty is us-east-1
	// KeyFile holds the id of an access key and its secret, in this order; or AccessKey and SecretKey are given.
	KeyFile              string
	AccessKey, SecretKey string

	Transport http.RoundTripper // nil is the usual one
	stall     time.Duration     // for tests
}

const (
	scheme          = "s3://"
	amazon          = "https://s3.amazonaws.com"
	setEndpoint     = "TOLL_S3_ENDPOINT (--s3-endpoint)"
	setKeyFile      = "TOLL_S3_KEY_FILE (--s3-key-file)"
	usualRegion     = "us-east-1"
	usualPart       = 16 << 20 // bytes of a part, of which one is in memory
	mostParts       = 9_000    // stores take 10,000
	usualStall      = 2 * time.Minute
	storeTries      = 4              // of one request
	readTries       = 5              // of a download, without a byte in between
	abandoned       = 24 * time.Hour // age of a half-written upload that nobody finishes
	firstRetry, top = 200 * time.Millisecond, 5 * time.Second
)

// Destination returns a folder, or the part of a bucket that s3://bucket/prefix names. It sends no request.
func (o ObjectStore) Destination(location string) (Destination, error) {
	if !strings.HasPrefix(location, scheme) {
		return folder(location), nil
	}
	u, err := url.Parse(location)
	if err != nil || u.Hostname() == "" || u.Host != u.Hostname() || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("an object store location must be s3://bucket/prefix; got %q", location)
	}
	host, err := o.host()
	if err != nil {
		return nil, err
	}
	access, secret, err := o.keys()
	if err != nil {
		return nil, err
	}
	stall := usualStall
	if o.stall > 0 {
		stall = o.stall
	}
	transport := o.Transport
	if transport == nil {
		transport = newTransport(stall)
	}
	region := usualRegion
	if o.Region != "" {
		region = o.Region
	}
	c, err := minio.New(host.Host, &minio.Options{
		Creds: credentials.NewStaticV4(access, secret, ""), Secure: host.Scheme == "https", Region: region,
		Transport: transport, MaxRetries: storeTries,
	})
	if err != nil {
		return nil, fmt.Errorf("object store: %w", err)
	}
	return &bucket{c, u.Host, strings.Trim(u.Path, "/")}, nil
}

// Split returns the place of a backup and its name there. The location is a path or s3://bucket/prefix/name.
func (o ObjectStore) Split(location string) (Destination, string, error) {
	dir, name := filepath.Split(location)
	if strings.HasPrefix(location, scheme) {
		dir, name = path.Split(location)
		if name == "" || dir == scheme {
			return nil, "", fmt.Errorf("the location of a backup in an object store must be s3://bucket/prefix/name; got %q", location)
		}
	}
	p, err := o.Destination(dir)
	return p, name, err
}

func (o ObjectStore) host() (*url.URL, error) {
	endpoint := o.Endpoint
	if endpoint == "" {
		endpoint = amazon
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("the endpoint of an object store must be https://host: fix %s", setEndpoint)
	}
	if u.Scheme != "https" && !(u.Scheme == "http" && toll.IsLoopback(u.Hostname())) {
		return nil, fmt.Errorf("the endpoint of an object store must use https, except on this machine; got %q: fix %s", u.Scheme, setEndpoint)
	}
	return u, nil
}

func (o ObjectStore) keys() (access, secret string, err error) {
	access, secret = o.AccessKey, o.SecretKey
	if o.KeyFile != "" {
		words, err := seal.Words(o.KeyFile, setKeyFile)
		if err != nil {
			return "", "", err
		}
		if len(words) != 2 {
			return "", "", fmt.Errorf("the file %s must contain the id of an access key and its secret: fix %s", o.KeyFile, setKeyFile)
		}
		access, secret = words[0], words[1]
	}
	if access == "" || secret == "" {
		return "", "", errors.New("an object store needs an access key: set " + setKeyFile + ", or TOLL_S3_ACCESS_KEY and TOLL_S3_SECRET_KEY")
	}
	return access, secret, nil
}

// newTransport ends connections on which nothing moves. The time of a whole backup is not bounded: it depends on its size.
func newTransport(stall time.Duration) *http.Transport {
	dialer := net.Dialer{Timeout: stall}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return stalling{c, stall}, nil
		},
		TLSHandshakeTimeout: stall,
		IdleConnTimeout:     stall / 2,
		DisableCompression:  true,
	}
}

// stalling is a connection on which each byte in either direction gives the next one its full time.
type stalling struct {
	net.Conn
	after time.Duration
}

func (c stalling) Read(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.after)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c stalling) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.after)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// bucket is a place in an object store. An object is there once its upload is complete, so no half-written one has a name.
type bucket struct {
	client       *minio.Client
	name, prefix string
}

func (b *bucket) key(name string) string { return path.Join(b.prefix, name) }

// under is what keys of the place begin with.
func (b *bucket) under() string {
	if b.prefix == "" {
		return ""
	}
	return b.prefix + "/"
}

func (b *bucket) shown(name string) string { return scheme + path.Join(b.name, b.key(name)) }

func (b *bucket) Files(ctx context.Context) (files []File, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a listing that is not read to its end
	for o := range b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: b.under()}) {
		if o.Err != nil {
			return nil, b.fault("list", o.Err)
		}
		if name := strings.TrimPrefix(o.Key, b.under()); name != "" && !strings.Contains(name, "/") {
			files = append(files, File{name, o.Size})
		}
	}
	slices.SortFunc(files, func(x, y File) int { return strings.Compare(x.Name, y.Name) })
	return files, nil
}

func (b *bucket) Remove(ctx context.Context, name string) error {
	return b.fault("remove "+b.shown(name), b.client.RemoveObject(ctx, b.name, b.key(name), minio.RemoveObjectOptions{}))
}

func (b *bucket) create(data, _ string) (*tempfile.File, error) { return sealedBackup.Create(data) }

// publish uploads the file in parts, each with a checksum that the store compares.
func (b *bucket) publish(ctx context.Context, f *tempfile.File, name string) error {
	key, shown := b.key(name), b.shown(name)
	_, err := b.client.StatObject(ctx, b.name, key, minio.StatObjectOptions{})
	if err == nil {
		return taken(shown)
	}
	if code(err) != minio.NoSuchKey {
		return b.fault("look for "+shown, err)
	}
	stat, err := f.Stat()
	if err != nil {
		return err
	}
	size := stat.Size()
	_, err = b.client.PutObject(ctx, b.name, key, io.NewSectionReader(f, 0, size), size, minio.PutObjectOptions{
		ContentType: "application/octet-stream", SendContentMd5: true, PartSize: partSize(size),
	})
	if err != nil {
		// The library gives its upload up with a context that may have ended.
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = b.client.RemoveIncompleteUpload(end, b.name, key) // tidy removes what is left
		return b.fault("write "+shown, err)
	}
	there, err := b.client.StatObject(ctx, b.name, key, minio.StatObjectOptions{})
	if err == nil && there.Size != size {
		err = fmt.Errorf("the object has %d of %d bytes", there.Size, size)
	}
	return b.fault("read back "+shown, err)
}

func partSize(size int64) uint64 {
	const unit = 1 << 20
	return uint64(max(usualPart, (size/mostParts/unit+1)*unit))
}

// tidy gives up uploads of scheduled backups that nobody finishes. Stores keep their parts, and charge for them.
func (b *bucket) tidy(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for u := range b.client.ListIncompleteUploads(ctx, b.name, b.under(), false) {
		if c := code(u.Err); c == minio.NoSuchUpload || c == minio.NotImplemented {
			return nil // some stores say so when there is none, and some keep no parts
		}
		if u.Err != nil {
			return b.fault("list uploads", u.Err)
		}
		name := strings.TrimPrefix(u.Key, b.under())
		if !IsScheduled(name) || now.Sub(u.Initiated) < abandoned {
			continue
		}
		if err := b.client.RemoveIncompleteUpload(ctx, b.name, u.Key); err != nil {
			return b.fault("abort the upload of "+b.shown(name), err)
		}
	}
	return nil
}

// Open returns a reader that asks for the rest of the object when a connection is cut.
func (b *bucket) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	o := &object{ctx: ctx, bucket: b, name: name}
	info, err := b.client.StatObject(ctx, b.name, b.key(name), minio.StatObjectOptions{})
	if err != nil {
		return nil, b.fault("read "+b.shown(name), err)
	}
	o.tag, o.size = info.ETag, info.Size
	return o, nil
}

// object is a backup that is read from a bucket.
type object struct {
	ctx    context.Context
	bucket *bucket
	name   string
	tag    string // of the content, which must stay the same
	size   int64
	at     int64
	body   io.ReadCloser // nil: to be asked for
	failed int           // tries since the last byte
}

func (o *object) Read(p []byte) (int, error) {
	for {
		if o.at == o.size {
			return 0, io.EOF
		}
		n, err := o.read(p)
		if n > 0 {
			o.failed = 0
			return n, nil
		}
		if err == nil {
			continue
		}
		o.failed++
		_ = o.Close()
		if o.failed >= readTries || !backoff.Sleep(o.ctx, backoff.Double(firstRetry, top, o.failed)) {
			return 0, o.bucket.fault("read "+o.bucket.shown(o.name), err)
		}
	}
}

// read reads from the open connection, or opens one first. A connection that ends before the object does is [io.ErrUnexpectedEOF].
func (o *object) read(p []byte) (n int, err error) {
	if o.body == nil {
		var opts minio.GetObjectOptions
		err := opts.SetMatchETag(o.tag)
		if err == nil && o.at > 0 {
			err = opts.SetRange(o.at, 0)
		}
		if err != nil {
			return 0, err
		}
		o.body, _, _, err = minio.Core{Client: o.bucket.client}.GetObject(o.ctx, o.bucket.name, o.bucket.key(o.name), opts)
		if err != nil {
			return 0, err
		}
	}
	n, err = o.body.Read(p[:min(int64(len(p)), o.size-o.at)])
	o.at += int64(n)
	if errors.Is(err, io.EOF) && o.at < o.size {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (o *object) Close() (err error) {
	if o.body != nil {
		err, o.body = o.body.Close(), nil
	}
	return err
}

// code is the word for a refusal of the store, "" for other errors.
func code(err error) string {
	if e, ok := errors.AsType[minio.ErrorResponse](err); ok {
		return e.Code
	}
	return ""
}

// advice says what to do about a refusal of the store.
var advice = map[string]string{
	minio.AccessDenied:             "the access key does not have permission, or the clock of this machine is wrong",
	minio.InvalidAccessKeyID:       "fix the access key",
	"SignatureDoesNotMatch":        "fix the secret of the access key",
	"RequestTimeTooSkewed":         "the clock of this machine is wrong",
	minio.NoSuchBucket:             "create the bucket",
	minio.NoSuchKey:                "there is no such backup",
	"AuthorizationHeaderMalformed": "fix TOLL_S3_REGION (--s3-region)",
}

// fault adds to an error what was tried and what to do.
func (b *bucket) fault(what string, err error) error {
	if err == nil {
		return nil
	}
	if a := advice[code(err)]; a != "" {
		return fmt.Errorf("object store: %s: %s: %w", what, a, err)
	}
	return fmt.Errorf("object store: %s: %w", what, err)
}
