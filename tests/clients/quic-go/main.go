// quic-go as the client: `h3client PORT`. The exchanges are those of ../exchanges.py.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

var base string

func pattern(length int) []byte {
	body := make([]byte, length)
	for at := range body {
		body[at] = byte(97 + at%251%26)
	}
	return body
}

func check(holds bool) error {
	if holds {
		return nil
	}
	return errors.New("wrong response")
}

func ask(client *http.Client, method, path string, body io.Reader, edit func(*http.Request)) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, base+path, body)
	if err != nil {
		return nil, nil, err
	}
	if edit != nil {
		edit(request)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	received, err := io.ReadAll(response.Body)
	return response, received, err
}

func ofLength(length int) func(*http.Client) error {
	return func(client *http.Client) error {
		response, body, err := ask(client, "GET", fmt.Sprintf("/bytes/%d", length), nil, nil)
		if err != nil {
			return err
		}
		return check(response.StatusCode == 200 && bytes.Equal(body, pattern(length)))
	}
}

func post(framing string) func(*http.Client) error {
	return func(client *http.Client) error {
		sent := pattern(300000)
		var body io.Reader = bytes.NewReader(sent)
		if framing == "chunked" {
			body = io.MultiReader(body)
		}
		response, received, err := ask(client, "POST", "/echo", body, nil)
		if err != nil {
			return err
		}
		return check(bytes.Equal(received, sent) && response.Header.Get("X-Framing") == framing)
	}
}

func trailers(client *http.Client) error {
	response, body, err := ask(client, "POST", "/trailers", io.MultiReader(strings.NewReader("abc")), func(request *http.Request) {
		request.Trailer = http.Header{"X-First": {"one"}}
	})
	if err != nil {
		return err
	}
	trailer := response.Trailer
	return check(string(body) == "abc" && trailer.Get("X-First") == "one" && trailer.Get("X-Last") == "yes")
}

func interim(client *http.Client) error {
	status := 0
	_, body, err := ask(client, "GET", "/interim", nil, func(request *http.Request) {
		trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			status = code
			return nil
		}}
		*request = *request.WithContext(httptrace.WithClientTrace(request.Context(), trace))
	})
	if err != nil {
		return err
	}
	return check(status == 103 && string(body) == "final")
}

func head(client *http.Client) error {
	response, body, err := ask(client, "HEAD", "/bytes/1000", nil, nil)
	if err != nil {
		return err
	}
	return check(len(body) == 0 && response.Header.Get("Content-Length") == "1000")
}

func notModified(client *http.Client) error {
	response, body, err := ask(client, "GET", "/etag", nil, func(request *http.Request) {
		request.Header.Set("If-None-Match", `"one"`)
	})
	if err != nil {
		return err
	}
	return check(response.StatusCode == 304 && len(body) == 0)
}

func resets(client *http.Client) error {
	ctx, cancel := context.WithCancel(context.Background())
	request, _ := http.NewRequestWithContext(ctx, "GET", base+"/bytes/10000000", nil)
	response, err := client.Do(request)
	if err != nil {
		cancel()
		return err
	}
	_, err = io.ReadFull(response.Body, make([]byte, 1000))
	cancel()
	response.Body.Close()
	if err != nil {
		return err
	}
	if _, _, err := ask(client, "GET", "/cut", nil, nil); err == nil {
		return errors.New("a response that is cut looks complete")
	}
	return ofLength(100)(client)
}

func parallel(client *http.Client) error {
	var all sync.WaitGroup
	failures := make(chan error, 100)
	for number := range 100 {
		all.Go(func() {
			if err := ofLength(number * 97)(client); err != nil {
				failures <- err
			}
		})
	}
	all.Wait()
	close(failures)
	return <-failures
}

func row(client *http.Client) error {
	for range 10000 {
		if err := ofLength(100)(client); err != nil {
			return err
		}
	}
	return nil
}

func webSocket(_ *http.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	connection, err := quic.DialAddr(ctx, strings.TrimPrefix(base, "https://"), http3.ConfigureTLSConfig(settings()), nil)
	if err != nil {
		return err
	}
	defer connection.CloseWithError(0x100, "")
	http3Connection := (&http3.Transport{}).NewClientConn(connection)
	select {
	case <-http3Connection.ReceivedSettings():
	case <-ctx.Done():
		return ctx.Err()
	}
	stream, err := http3Connection.OpenRequestStream(ctx)
	if err != nil {
		return err
	}
	target, _ := url.Parse(base + "/ws")
	header := http.Header{"Sec-Websocket-Version": {"13"}}
	request := &http.Request{Method: "CONNECT", Proto: "websocket", URL: target, Host: target.Host, Header: header}
	if err := stream.SendRequestHeader(request); err != nil {
		return err
	}
	response, err := stream.ReadResponse()
	if err != nil {
		return err
	}
	for _, text := range []string{"one", "two"} {
		// The mask is zero.
		frame := append([]byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0}, text...)
		if _, err := stream.Write(frame); err != nil {
			return err
		}
		received := make([]byte, 2+len(text))
		if _, err := io.ReadFull(stream, received); err != nil {
			return err
		}
		if string(received[2:]) != text || response.StatusCode != 200 {
			return errors.New("wrong frame")
		}
	}
	return stream.Close()
}

func settings() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, ServerName: "localhost"}
}

func main() {
	base = "https://localhost:" + os.Args[1]
	exchanges := []func(*http.Client) error{
		ofLength(0), ofLength(100), ofLength(1 << 20), ofLength(100 << 20), post("length"), post("chunked"), trailers,
		interim, head, notModified, resets, parallel, row, webSocket,
	}
	for number, exchange := range exchanges {
		transport := &http3.Transport{TLSClientConfig: settings()}
		if err := exchange(&http.Client{Transport: transport}); err != nil {
			fmt.Printf("%d\tfailed: %v\n", number, err)
		} else {
			fmt.Printf("%d\tok\n", number)
		}
		transport.Close()
	}
}
