package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// security is the content of the file that TIDELOG_COMPAT_SECURITY names.
type security struct {
	Authority   string `json:"authority"`
	Certificate string `json:"certificate"`
	User        string `json:"user"`
	Password    string `json:"password"`
}

// newClient adds TLS and the login to the options, if there is such a file.
func newClient(options ...kgo.Opt) (*kgo.Client, error) {
	secured, err := securityOptions(os.Getenv("TIDELOG_COMPAT_SECURITY"))
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(options, secured...)...)
}

func securityOptions(file string) ([]kgo.Opt, error) {
	if file == "" {
		return nil, nil
	}
	var found security
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(found.Authority)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(authority)
	options := []kgo.Opt{kgo.DialTLSConfig(config)}
	if found.Certificate != "" {
		own, err := tls.LoadX509KeyPair(found.Certificate, found.Certificate)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	if found.User != "" {
		options = append(options, kgo.SASL(scram.Auth{User: found.User, Pass: found.Password}.AsSha512Mechanism()))
	}
	return options, nil
}
