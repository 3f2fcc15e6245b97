// Clusters of kfake for `python -m bench.test_kit`: "open N" starts one of N brokers and prints its addresses,
// "close" closes all.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	clusters := []*kfake.Cluster{}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		var brokers int
		if found, _ := fmt.Sscanf(input.Text(), "open %d", &brokers); found == 1 {
			cluster, err := kfake.NewCluster(kfake.NumBrokers(brokers), kfake.AllowAutoTopicCreation())
			if err != nil {
				fmt.Println("error", err)
				continue
			}
			clusters = append(clusters, cluster)
			fmt.Println(strings.Join(cluster.ListenAddrs(), ","))
		} else {
			for _, cluster := range clusters {
				cluster.Close()
			}
			clusters = nil
			fmt.Println("closed")
		}
	}
}
