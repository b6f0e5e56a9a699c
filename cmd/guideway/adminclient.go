package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// adminClient asks a running instance.
type adminClient struct{ address string }

func (a *adminClient) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.address, "admin", "127.0.0.1:9901", "admin `address` of the running instance")
}

// request sends a request and returns the body of an answer with status 200.
func (a *adminClient) request(ctx context.Context, method, path string) (io.ReadCloser, error) {
	return a.send(ctx, method, path, nil)
}

// send is request with a body.
func (a *adminClient) send(ctx context.Context, method, path string, content io.Reader) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+a.address+path, content)
	if err != nil {
		return nil, fmt.Errorf("--admin %q: %w", a.address, err)
	}
	answer, err := http.DefaultClient.Do(r)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("nobody listens on %s: is an instance running, and is that the admin address of its configuration? (--admin)", a.address)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the running instance: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		why, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		return nil, fmt.Errorf("the running instance says: %s", strings.TrimSpace(string(why)))
	}
	return answer.Body, nil
}

// ask sends a request with parameters and a body (nil for none), and reads the JSON of the answer.
func (a *adminClient) ask(ctx context.Context, method, path string, query url.Values, content io.Reader, into any) error {
	body, err := a.send(ctx, method, path+"?"+query.Encode(), content)
	if err != nil {
		return err
	}
	defer body.Close()
	return decodeAnswer(body, into)
}

func (a *adminClient) json(ctx context.Context, path string, into any) error {
	body, err := a.request(ctx, http.MethodGet, path)
	if err != nil {
		return err
	}
	defer body.Close()
	return decodeAnswer(body, into)
}

func decodeAnswer(body io.Reader, into any) error {
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return fmt.Errorf("read the answer of the running instance: %w", err)
	}
	return nil
}
