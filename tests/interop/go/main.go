// The Go client v2 driven over JSON lines, like the C++, Node.js and Java ones;
// support/peers/clients.py is the other end.
//
//	go-driver produce NAMESRV GROUP OPTIONS-JSON   (see transactions.go with "transactional")
//	go-driver consume NAMESRV GROUP OPTIONS-JSON   (push consumer)
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const bodyShownMax = 2000

var statuses = map[primitive.SendStatus]string{
	primitive.SendOK:                "SEND_OK",
	primitive.SendFlushDiskTimeout:  "FLUSH_DISK_TIMEOUT",
	primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT",
	primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
}

type options struct {
	Topic      string `json:"topic"`
	Expression string `json:"expression"`
	SQL        string `json:"sql"`
	FailBelow  int32  `json:"fail_below"`
	Orderly    bool   `json:"orderly"`
	TimeoutMs  int    `json:"timeout_ms"`
	AccessKey  string `json:"access_key"`
	SecretKey  string `json:"secret_key"`

	Transactional bool `json:"transactional"`
}

func (chosen options) credentials() primitive.Credentials {
	return primitive.Credentials{AccessKey: chosen.AccessKey, SecretKey: chosen.SecretKey}
}

type command struct {
	Op          string            `json:"op"`
	ID          int               `json:"id"`
	Topic       string            `json:"topic"`
	Mode        string            `json:"mode"`
	Body        string            `json:"body"`
	Bodies      []string          `json:"bodies"`
	RandomBytes int               `json:"random_bytes"`
	Tags        string            `json:"tags"`
	Keys        string            `json:"keys"`
	Shard       *int              `json:"shard"`
	DelayLevel  int               `json:"delay_level"`
	Properties  map[string]string `json:"properties"`
	Local       string            `json:"local"`
	Checked     string            `json:"checked"`
}

type event map[string]any

// The library logs to stderr; events have stdout to themselves.
var (
	lock     sync.Mutex
	events   = json.NewEncoder(os.Stdout)
	commands = bufio.NewScanner(os.Stdin)
)

func main() {
	commands.Buffer(nil, 16<<20)
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		emit(event{"event": "broken", "error": err.Error()})
		os.Exit(1)
	}
	emit(event{"event": "stopped"})
}

func run(role, namesrv, group, text string) error {
	var chosen options
	if err := json.Unmarshal([]byte(text), &chosen); err != nil {
		return err
	}
	switch role {
	case "produce":
		return produce(namesrv, group, chosen)
	case "consume":
		return consume(namesrv, group, chosen)
	}
	return fmt.Errorf("no role %s", role)
}

func produce(namesrv, group string, chosen options) error {
	if chosen.TimeoutMs == 0 {
		chosen.TimeoutMs = 10000
	}
	settings := []producer.Option{
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{namesrv})),
		producer.WithGroupName(group),
		producer.WithSendMsgTimeout(time.Duration(chosen.TimeoutMs) * time.Millisecond),
		producer.WithQueueSelector(byShard{producer.NewRoundRobinQueueSelector()}),
	}
	if chosen.AccessKey != "" {
		settings = append(settings, producer.WithCredentials(chosen.credentials()))
	}
	if chosen.Transactional {
		return transact(settings...)
	}
	client, err := rocketmq.NewProducer(settings...)
	if err != nil {
		return err
	}
	if err := client.Start(); err != nil {
		return err
	}
	emit(event{"event": "ready", "client": "go"})
	for one, ok := next(); ok; one, ok = next() {
		send(client, one)
	}
	return client.Shutdown()
}

func send(client rocketmq.Producer, one command) {
	ctx := context.Background()
	switch one.Mode {
	case "sync", "ordered":
		sent(one.ID)(client.SendSync(ctx, message(one, one.Body)))
	case "async":
		report := sent(one.ID)
		err := client.SendAsync(
			ctx,
			func(_ context.Context, result *primitive.SendResult, err error) { report(result, err) },
			message(one, one.Body),
		)
		if err != nil {
			report(nil, err)
		}
	case "oneway":
		if err := client.SendOneWay(ctx, message(one, one.Body)); err != nil {
			sent(one.ID)(nil, err)
			return
		}
		emit(event{
			"event": "sent", "id": one.ID, "status": "ONEWAY", "msg_id": nil, "queue_offset": nil,
		})
	case "batch":
		var batch []*primitive.Message
		for _, body := range one.Bodies {
			batch = append(batch, message(one, body))
		}
		sent(one.ID)(client.SendSync(ctx, batch...))
	default:
		sent(one.ID)(nil, fmt.Errorf("no mode %s", one.Mode))
	}
}

// The rest of a number by the count of queues, as the other drivers do; others go round.
type byShard struct{ others producer.QueueSelector }

func (selector byShard) Select(
	message *primitive.Message, queues []*primitive.MessageQueue, lastBrokerName string,
) *primitive.MessageQueue {
	if shard, err := strconv.Atoi(message.GetShardingKey()); err == nil {
		return queues[shard%len(queues)]
	}
	return selector.others.Select(message, queues, lastBrokerName)
}

func message(one command, body string) *primitive.Message {
	data := []byte(body)
	if one.RandomBytes > 0 {
		data = make([]byte, one.RandomBytes)
		_, _ = rand.Read(data)
	}
	made := primitive.NewMessage(one.Topic, data)
	if one.Tags != "" {
		made.WithTag(one.Tags)
	}
	if one.Keys != "" {
		made.WithKeys(strings.Split(one.Keys, " "))
	}
	if one.Shard != nil {
		made.WithShardingKey(strconv.Itoa(*one.Shard))
	}
	if one.DelayLevel > 0 {
		made.WithDelayTimeLevel(one.DelayLevel)
	}
	for name, value := range one.Properties {
		made.WithProperty(name, value)
	}
	return made
}

func sent(id int) func(*primitive.SendResult, error) {
	return func(result *primitive.SendResult, err error) {
		if err != nil {
			emit(event{"event": "failed", "id": id, "error": err.Error()})
			return
		}
		emit(event{
			"event": "sent", "id": id, "status": statuses[result.Status],
			"msg_id": result.MsgID, "queue_offset": result.QueueOffset,
			"offset_msg_id": result.OffsetMsgID, "broker": result.MessageQueue.BrokerName,
			"queue_id": result.MessageQueue.QueueId,
		})
	}
}

func consume(namesrv, group string, chosen options) error {
	settings := []consumer.Option{
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{namesrv})),
		consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(chosen.Orderly),
	}
	if chosen.AccessKey != "" {
		settings = append(settings, consumer.WithCredentials(chosen.credentials()))
	}
	client, err := rocketmq.NewPushConsumer(settings...)
	if err != nil {
		return err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: chosen.Expression}
	if chosen.SQL != "" {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: chosen.SQL}
	}
	err = client.Subscribe(chosen.Topic, selector, func(
		_ context.Context, messages ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		result := consumer.ConsumeSuccess
		for _, message := range messages {
			received(message)
			if message.ReconsumeTimes < chosen.FailBelow {
				result = consumer.ConsumeRetryLater
			}
		}
		return result, nil
	})
	if err != nil {
		return err
	}
	if err := client.Start(); err != nil {
		return err
	}
	emit(event{"event": "ready", "client": "go"})
	for _, ok := next(); ok; _, ok = next() {
	}
	return client.Shutdown()
}

func received(message *primitive.MessageExt) {
	digest := sha256.Sum256(message.Body)
	var body any
	if len(message.Body) <= bodyShownMax {
		body = string(message.Body)
	}
	emit(event{
		"event": "message", "topic": message.Topic, "body": body, "size": len(message.Body),
		"sha256": hex.EncodeToString(digest[:]),
		"tags":   orNull(message.GetTags()), "keys": orNull(message.GetKeys()),
		"queue_id": message.Queue.QueueId, "queue_offset": message.QueueOffset,
		"commit_log_offset": message.CommitLogOffset, "msg_id": message.MsgId,
		"offset_msg_id": message.OffsetMsgId, "broker": message.Queue.BrokerName,
		"reconsume_times": message.ReconsumeTimes, "born_timestamp": message.BornTimestamp,
		"store_timestamp": message.StoreTimestamp, "store_size": message.StoreSize,
		"properties": message.GetProperties(),
	})
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// next is the next command; false at the end of input and when told to stop.
func next() (command, bool) {
	var one command
	if !commands.Scan() || json.Unmarshal(commands.Bytes(), &one) != nil || one.Op == "stop" {
		return one, false
	}
	return one, true
}

func emit(one event) {
	lock.Lock()
	defer lock.Unlock()
	_ = events.Encode(one)
}
