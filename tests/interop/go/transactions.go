package main

import (
	"context"
	"sync"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// How local transactions end and checks are answered, by the message's body; as in Transactions.java.
type outcomes struct {
	local, checked sync.Map
}

var states = map[string]primitive.LocalTransactionState{
	"commit":   primitive.CommitMessageState,
	"rollback": primitive.RollbackMessageState,
}

func stateOf(table *sync.Map, body []byte) (string, primitive.LocalTransactionState) {
	word, _ := table.Load(string(body))
	text, _ := word.(string)
	if state, ok := states[text]; ok {
		return text, state
	}
	return "unknown", primitive.UnknowState
}

func (known *outcomes) ExecuteLocalTransaction(
	message *primitive.Message,
) primitive.LocalTransactionState {
	_, state := stateOf(&known.local, message.Body)
	return state
}

func (known *outcomes) CheckLocalTransaction(
	message *primitive.MessageExt,
) primitive.LocalTransactionState {
	text, state := stateOf(&known.checked, message.Body)
	emit(event{
		"event": "checked", "body": string(message.Body), "state": text, "topic": message.Topic,
		"transaction_id": message.TransactionId, "properties": message.GetProperties(),
	})
	return state
}

func transact(options ...producer.Option) error {
	known := &outcomes{}
	client, err := rocketmq.NewTransactionProducer(known, options...)
	if err != nil {
		return err
	}
	if err := client.Start(); err != nil {
		return err
	}
	emit(event{"event": "ready", "client": "go"})
	for one, ok := next(); ok; one, ok = next() {
		known.local.Store(one.Body, one.Local)
		known.checked.Store(one.Body, one.Checked)
		result, err := client.SendMessageInTransaction(context.Background(), message(one, one.Body))
		if err != nil {
			sent(one.ID)(nil, err)
			continue
		}
		sent(one.ID)(result.SendResult, nil)
	}
	return client.Shutdown()
}
